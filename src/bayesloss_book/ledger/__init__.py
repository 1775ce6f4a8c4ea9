"""The claims of both papers: ledger, checks, and the pages that are made from them."""

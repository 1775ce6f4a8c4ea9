"""The claims of the papers: ledger, checks, and the pages that are made from them."""

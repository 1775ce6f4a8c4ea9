"""What the book is made with: data, results, the ledger of claims, figures."""

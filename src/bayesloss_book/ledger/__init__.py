"""What this book gives to `paperledger`: claims, falsifiers, tolerances, and what stores need."""

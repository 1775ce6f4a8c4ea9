"""The plant of LHG section 2, and its losses."""

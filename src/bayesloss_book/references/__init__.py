"""Independent routes to what a page computes: samplers, exact laws, counts."""

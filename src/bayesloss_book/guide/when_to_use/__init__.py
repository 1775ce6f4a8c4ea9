"""Our estimators beside scikit-learn's, on real and simulated tables."""

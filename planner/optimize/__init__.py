"""Find the configurations that are feasible and best."""

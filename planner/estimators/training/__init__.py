"""Training: a layer as operators, a step in time, what a GPU holds."""

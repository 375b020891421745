"""How sure predictions are: the errors of published runs as data."""

"""A layer as one list of operators with sizes; what it takes and holds are folds over it."""

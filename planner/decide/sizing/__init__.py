"""Size GPUs: how many of each type and contract keep the limits, and by what margin."""

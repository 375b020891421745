"""How many GPUs of each type and contract it takes to keep limits, and by what margin."""

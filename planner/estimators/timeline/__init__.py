"""When a step does what: works of each rank in their order, and its memory meanwhile."""

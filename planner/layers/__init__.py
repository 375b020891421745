"""A layer as a list of operators with sizes; time and memory are sums over it."""

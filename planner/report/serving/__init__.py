"""Reports of serving."""

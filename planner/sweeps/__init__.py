"""Many questions at once: every combination of what a plan lists, each one search."""

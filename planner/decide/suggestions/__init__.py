"""Suggested changes: where nothing is feasible, near a launch file, and for a lower cost."""

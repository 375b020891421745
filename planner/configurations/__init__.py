"""Candidates: arrays of configurations, and the rules they must satisfy."""

"""Fit the few physical parameters of a profile to measured runs."""

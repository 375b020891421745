"""Estimates from specs and configurations."""

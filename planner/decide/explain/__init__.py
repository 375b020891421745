"""Explain time and memory of a plan, its sensitivities, and compare plans."""

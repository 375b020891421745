"""Wiring: specs and configurations to an estimate."""

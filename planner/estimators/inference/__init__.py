"""Estimates of prefill, decode and serving from the operators of a layer."""

"""Specs of hardware, models, frameworks, workloads and search spaces."""

"""Workloads: the question, configurations, evaluation, columns and texts of each."""

"""Logs of runs as numbers: which tool printed them, and what it measured."""

"""Logs of runs: what was measured, compared with what a plan predicted, as a row of runs."""

"""Logs of own runs beside what their plans predicted."""

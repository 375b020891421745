"""Shared basics: formats, units, text, files, processes."""

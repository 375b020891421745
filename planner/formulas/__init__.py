"""Elementwise functions of numbers, each with its reference."""

"""The search for ways to serve a model."""

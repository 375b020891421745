"""Predictions for measured batches and requests of inference."""

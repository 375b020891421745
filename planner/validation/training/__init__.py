"""Predictions for measured steps of training."""

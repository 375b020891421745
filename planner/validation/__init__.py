"""Published runs: their measurements, our predictions for them, and the errors of these."""

"""What follows from predictions: sizes, open facts, better plans, prices of others."""

"""From a question to a problem, and plans as values."""

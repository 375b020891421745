"""Published runs: what they did, what is predicted for them, and how far off that is."""

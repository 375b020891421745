"""The files that start a plan, written for a framework and read from a user's own."""

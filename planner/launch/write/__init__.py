"""Writing launch files: a plan becomes the files that start it."""

"""The command line: a file for each command, or for some that are alike."""

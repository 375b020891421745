"""Reading launch files: the commands and documents of a user become settings of a plan."""

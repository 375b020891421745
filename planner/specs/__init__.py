"""What the user describes: hardware, models, frameworks, workloads, search spaces."""

"""What a launch file says, as far as its text alone tells; nothing of it is ever run."""

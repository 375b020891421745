"""What a step of reinforcement learning takes: its trainer, its engine, and both together."""

"""Training and fine-tuning as a workload."""

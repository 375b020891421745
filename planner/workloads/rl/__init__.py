"""Reinforcement learning as a workload."""

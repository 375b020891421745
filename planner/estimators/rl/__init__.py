"""Estimates of reinforcement learning: trainer, rollouts, and a step of both."""

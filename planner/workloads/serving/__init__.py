"""Serving as a workload: streams of requests and static batches."""

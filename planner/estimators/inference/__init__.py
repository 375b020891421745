"""Prefill, decode and serving: the layer as operators, in the sizes of inference."""

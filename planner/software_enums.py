"""The closed sets of words for how training software computes."""

from __future__ import annotations

from planner.enums import Code


class AttentionKernel(Code):
    """Which kernels compute the core of attention in training.

    ``AUTO``: those of the framework. ``EAGER``: products and a softmax of their own; ``SDPA``:
    what PyTorch's scaled_dot_product_attention chooses on the GPU; ``FA2``, ``FA3``, ``FA4``:
    FlashAttention's generations; ``CUDNN``: NVIDIA's; ``TRITON``: FlexAttention's and others that
    are written for no one GPU.
    """

    AUTO = 0
    EAGER = 1
    SDPA = 2
    FA2 = 3
    FA3 = 4
    FA4 = 5
    CUDNN = 6
    TRITON = 7

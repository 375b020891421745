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


class LossKernel(Code):
    """How training computes the loss from logits, and with that how many copies of them there are.

    ``AUTO``: as the framework does. ``EAGER``: kernels of its own for each operation, in fp32;
    ``COMPILED``: what a compiler makes of these; ``FUSED``: one kernel; ``CHUNKED``: fp32 copies of
    a part of the tokens at a time; ``LINEAR``: logits of a part of the tokens at a time, too, fused
    with their matrix (Liger, cut cross-entropy, TRL's chunked_nll).
    """

    AUTO = 0
    EAGER = 1
    COMPILED = 2
    FUSED = 3
    CHUNKED = 4
    LINEAR = 5


class ExpertCompute(Code):
    """How the experts of a GPU are computed.

    ``AUTO``: as the framework does; ``GROUPED``: all in one grouped product; ``LOOP``: one after
    the other, each with kernels of its own, as Transformers before 5 does.
    """

    AUTO = 0
    GROUPED = 1
    LOOP = 2

"""What PyTorch's kernels read and write where no compiler fuses them, in 16-bit tensors.

A number in fp32 counts twice. Each pair is of the forward and of the backward pass as autograd
makes it.

References
----------
.. [1] huggingface/transformers 5, models/llama/modeling_llama.py: LlamaRMSNorm,
   apply_rotary_pos_emb and LlamaMLP; PyTorch 2.5, aten/src/ATen/native/layer_norm.cpp, rms_norm.
   Counted here from them.
.. [2] pytorch/torchtitan, torchtitan/models/llama/model.py: apply_rotary_emb in complex numbers.
"""

from __future__ import annotations

RMS_NORM = (18, 42)
"""Forward 18: a copy in fp32 3, its square 4, the mean 2, the product with the inverse root 4, the
cast 3, the product with the weights 2 [1]_. Backward 42: the weights and what they multiply 6, a
cast 3, the product 4, the gradient of the root 8, that of the square 12, their sum 6, a cast 3."""

ROTARY = (10, 10)
"""Casts 3 and 3, and a complex product 4 [2]_; two products, a negated half, a concatenation and a
sum are as many [1]_."""

GATED = (5, 9)
"""A function of the gate 2, its product with the other half 3; backward three kernels of 3 [1]_."""

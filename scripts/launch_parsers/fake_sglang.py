"""SGLang without its kernels: imported before anything of SGLang."""

from __future__ import annotations

import fake_gpu
import stubs
import torch
from transformers.utils import is_torchvision_available

is_torchvision_available()  # transformers asks once; there is none, whatever stands in below
torch.version.cuda = "13.0"
fake_gpu.install({})
stubs.install("triton", "torchvision", "sgl_kernel")

"""Answers of torch about a GPU that is not there, for parsers that ask before they go on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

GIB = 2**30


class Nothing:
    """A stream or an event on which nothing ever runs."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass


def install(case: dict[str, Any]) -> None:
    """An 80 GB GPU of compute capability 9.0, unless the case says otherwise."""
    major, minor = case.get("compute_capability", (9, 0))
    memory = int(case.get("memory_gib", 80) * GIB)
    properties = SimpleNamespace(
        name=case.get("gpu", "NVIDIA H100 80GB HBM3"),
        major=major,
        minor=minor,
        total_memory=memory,
        multi_processor_count=132,
        gcnArchName="",
    )
    torch.cuda.get_device_capability = lambda *_: (major, minor)
    torch.cuda.get_device_properties = lambda *_: properties
    torch.cuda.get_device_name = lambda *_: properties.name
    torch.cuda.current_device = lambda: case.get("current_device", 0)
    torch.cuda.device_count = lambda: case.get("devices", 8)
    torch.cuda.is_available = lambda: True
    torch.cuda.Stream = torch.cuda.Event = Nothing
    torch.cuda.mem_get_info = lambda *_: (memory, memory)

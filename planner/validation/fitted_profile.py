"""A framework profile with fitted numbers, as a TOML file."""

from __future__ import annotations

from collections.abc import MutableMapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from planner.base.reading import read_text
from planner.base.units import GIB
from planner.errors import MissingDependencyError

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

    from planner.validation.fit import Fit

SOURCE = "calibrated"
_DIGITS = 4
_MILLISECONDS = (
    "layer_launch_time",
    "adapter_launch_time",
    "dequantize_launch_time",
    "weight_broadcast_time",
    "node_reduce_wait",
    "module_gather_time",
    "micro_batch_overhead",
    "step_overhead",
    "request_overhead",
    "draft_overhead",
)
_MICROSECONDS = (
    "decode_launch_time",
    "prefill_launch_time",
    "expert_launch_time",
    "decode_expert_launch_time",
    "latent_launch_time",
    "recurrent_launch_time",
    "expert_loop_time",
    "collective_launch_time",
    "network_callback_time",
    "adapter_launch_time",
    "quantized_launch_time",
    "sequence_overhead",
    "draft_sequence_overhead",
)
_GIBIBYTES = ("reserved", "communication_buffer", "loss_chunk")
_GIGABYTES_PER_SECOND = ("vector_bandwidth", "attention_block_bandwidth")
_BYTES = ("per_logit", "per_logit_fused", "optimizer_temporary", "step_gradients")


def require_fitting() -> None:
    """Check that what calibration needs is installed.

    Raises
    ------
    MissingDependencyError
        scipy or tomlkit is missing.
    """
    if find_spec("scipy") is None or find_spec("tomlkit") is None:
        raise MissingDependencyError(
            "Calibration needs scipy and tomlkit: pip install 'llm-gpu-planner[calibration]'."
        )


def unit_of(name: str) -> tuple[str, float]:
    """The unit a parameter is written in, and how many of it make one in SI."""
    if name in _MILLISECONDS:
        return "ms", 1e3
    if name in _MICROSECONDS:
        return "us", 1e6
    if name in _GIGABYTES_PER_SECOND:
        return "GB/s", 1e-9
    if name in _GIBIBYTES:
        return "GiB", 1 / GIB
    return ("B", 1.0) if name in _BYTES else ("1", 1.0)


def profile_text(shipped: Path, fit: Fit, origin: str) -> str:
    """The text of ``shipped`` with the fitted numbers, which name ``origin`` as their source."""
    import tomlkit

    document = tomlkit.parse(read_text(shipped))
    table_of(document, "sources")[SOURCE] = origin
    for parameter, value in fit.values.items():
        unit, scale = unit_of(parameter.name)
        number = tomlkit.inline_table()
        number |= {"value": float(f"{value * scale:.{_DIGITS}g}"), "unit": unit, "source": SOURCE}
        table_of(document, parameter.owner)[parameter.name] = number
    return str(document.as_string())


def table_of(document: TOMLDocument, name: str) -> MutableMapping[str, object]:
    """A table of a TOML document, which a profile that extends another may lack."""
    import tomlkit

    if name not in document:
        document[name] = tomlkit.table()
    table = document[name]
    assert isinstance(table, MutableMapping)
    return table

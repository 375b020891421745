"""The text of a profile with fitted numbers, in the units of its file."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from planner.base.read_files import read_text
from planner.base.units import GIB

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

from planner.validation.calibration import ROLLOUTS
from planner.validation.fit_parameters import Fit

SOURCE = "calibrated"
_DIGITS = 4
_MILLISECONDS = (
    "layer_launch_time",
    "adapter_launch_time",
    "dequantize_launch_time",
    "weight_broadcast_time",
    "node_reduce_wait",
    "module_gather_time",
    "module_hook_time",
    "micro_batch_overhead",
    "step_overhead",
    "request_overhead",
    "draft_overhead",
    "decode_layer_time",
    "host_expert_time",
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


def unit_of(name: str) -> tuple[str, float]:
    """Return the unit in which files store a parameter, and the factor from SI to this unit."""
    if name in _MILLISECONDS:
        return "ms", 1e3
    if name in _MICROSECONDS:
        return "us", 1e6
    if name in _GIGABYTES_PER_SECOND:
        return "GB/s", 1e-9
    if name in _GIBIBYTES:
        return "GiB", 1 / GIB
    return ("B", 1.0) if name in _BYTES else ("1", 1.0)


def profile_text(shipped: Path, fit: Fit, origin: str, gpus: Sequence[str] = ()) -> str:
    """Return the TOML text of a profile with the fitted numbers; ``origin`` is their source.

    For reinforcement learning, the error of the fit and the ``gpus`` of the runs are added.
    """
    import tomlkit

    document = tomlkit.parse(read_text(shipped))
    table_of(document, "sources")[SOURCE] = origin
    for parameter, value in fit.values.items():
        unit, scale = unit_of(parameter.name)
        number = tomlkit.inline_table()
        number |= {"value": float(f"{value * scale:.{_DIGITS}g}"), "unit": unit, "source": SOURCE}
        table_of(document, parameter.owner)[parameter.name] = number
    if fit.spread is not None and any(parameter.owner == ROLLOUTS for parameter in fit.values):
        table = table_of(document, ROLLOUTS)
        table["calibration_runs"], table["calibration_gpus"] = fit.runs, list(gpus)
        error = tomlkit.inline_table()
        error |= {"value": round(fit.spread, _DIGITS), "unit": "1", "source": SOURCE}
        table["calibration_error"] = error
    return str(document.as_string())


def table_of(document: TOMLDocument, name: str) -> MutableMapping[str, object]:
    """Return a table of a TOML document; adds an empty table if the document lacks it."""
    import tomlkit

    if name not in document:
        document[name] = tomlkit.table()
    table = document[name]
    assert isinstance(table, MutableMapping)
    return table

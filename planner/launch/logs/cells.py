"""A plan and what a log measured of it as a row of a table of runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from planner.base.enums import LinkKind
from planner.base.units import UNITS
from planner.errors import LaunchError
from planner.launch.logs.planned import STATIC, Planned
from planner.launch.logs.reading import Reading
from planner.question.terms import terms_of
from planner.validation.columns import INFERENCE, TRAINING, ColumnType, Schema, is_path
from planner.validation.inference.cases import Mode

_GIGABIT = UNITS["byte/s"]["Gbit/s"]
_GIGABYTE = UNITS["byte"]["GB"]
# Words of the columns for weights, activations and products, by quantization.
_WORDS: Mapping[str, tuple[str, str, str]] = {
    "w16a16": ("bf16", "bf16", ""),
    "w8a8": ("int8", "int8", ""),
    "w8a16": ("int8", "bf16", ""),
    "w4a16": ("int4", "bf16", ""),
    "w4a8": ("int4", "int8", ""),
    "w4a4": ("int4", "int4", ""),
    "fp8": ("fp8", "fp8", ""),
    "fp8_block": ("fp8", "fp8", "fp8_block"),
    "nvfp4": ("fp4", "fp4", ""),
    "mxfp4": ("mxfp4", "bf16", "mxfp4"),
}
_OFFLOADED: Mapping[Any, str] = {
    (0.0, 0.0): "none",
    (1.0, 0.0): "weights",
    (0.0, 1.0): "kv_cache",
    (1.0, 1.0): "weights+kv_cache",
}
Cells = dict[str, str]


def schema_for(planned: Planned) -> Schema:
    """The columns of the table that a run of the plan belongs to."""
    return TRAINING if planned.is_training else INFERENCE


def run_cells(
    planned: Planned, reading: Reading, measured: Mapping[str, float], name: str
) -> Cells:
    """The cells of the run, by column; ``measured`` in the units of the columns.

    Raises
    ------
    LaunchError
        A table of runs cannot name the model or the GPU of the plan.
    """
    cells = dict(
        _training(planned) if planned.is_training else _serving(planned, reading),
        id=name,
        source="own measurement",
        **_machine(planned),
        notes=f"read of a log of {reading.title}",
    )
    cells["model"] = _named(planned, "model")
    cells["gpu"] = _named(planned, "gpu")
    found = {column: _text(value) for column, value in cells.items()}
    found |= {f"measured_{column}": f"{value:.6g}" for column, value in measured.items()}
    known = schema_for(planned).columns
    return {column: cell for column, cell in found.items() if cell and column in known}


def unsaid(planned: Planned) -> Iterator[str]:
    """What of the plan no column tells, so that a row would claim something else."""
    row, work = planned.row, planned.setting.workload
    if planned.is_training:
        return
    if getattr(work, "prefix_cache_hit_rate", 0.0):
        yield f"that {work.prefix_cache_hit_rate:.0%} of the prompts is found in the cache"
    if (row.get("weight_offload"), row.get("kv_offload")) not in _OFFLOADED:
        yield "which share of weights and cache is offloaded"
    if _prefill(row) and row["quantization"] != row["prefill_quantization"]:
        yield "that prefill and decode workers have different quantizations"
    if _prefill(row) and row["gpu"] != row["prefill_gpu"]:
        yield "that prefill workers have another GPU"


def _named(planned: Planned, question: str) -> str:
    """The answer to a question as a table names it: a name of the catalogue, never a file."""
    answer = str(planned.row["gpu"] if question == "gpu" else planned.pinned.answers[question])
    if is_path(answer, slashes=question == "model"):
        raise LaunchError(
            f"A table of runs names specs, not files: put {answer} into a folder of --specs, "
            f"make the plan with its name there, and give --specs here too."
        )
    return answer


def _training(planned: Planned) -> Mapping[str, Any]:
    row, work = planned.row, planned.setting.workload
    adapter = row.get("adapter", "none")
    return {
        "framework": row["framework"],
        "workload": "pretrain" if adapter == "none" else adapter,
        "lora_rank": "" if adapter == "none" else work.lora_rank,
        "sequence_length": work.sequence_length,
        "mtp_num_layers": planned.model.mtp_num_layers or "",
        "data_parallel": row["data_parallel"],
        **_parameters(planned),
    }


def _parameters(planned: Planned) -> dict[str, Any]:
    """The parameters that are columns too; a count of none is left out."""
    columns = schema_for(planned).columns
    return {
        name: planned.row[name]
        for name in terms_of(planned.pinned.workload, "parameter")
        if name in columns and (planned.row[name] or columns[name].type is not ColumnType.COUNT)
    }


def _serving(planned: Planned, reading: Reading) -> Mapping[str, Any]:
    row, work = planned.row, planned.setting.workload
    weights, activations, products = _WORDS[str(row["quantization"])]
    if row["expert_quantization"] == "mxfp4":
        weights, activations, products = _WORDS["mxfp4"]
    offloaded = (row.get("weight_offload"), row.get("kv_offload"))
    return {
        "framework": row["engine"],
        "mode": _mode(planned, reading),
        **_parameters(planned),
        **_prefill(row),
        "offload": _OFFLOADED.get(offloaded, ""),
        "weight_precision": weights,
        "activation_precision": activations,
        "gemm_precision": products,
        "kv_cache_precision": row["kv_cache"],
        "input_tokens": _length(reading, work, "input_tokens"),
        "output_tokens": _length(reading, work, "output_tokens"),
        "draft_tokens": getattr(work, "draft_tokens", 0) or "",
        **_load(planned, reading),
    }


def _length(reading: Reading, work: Any, name: str) -> float:
    return round(float(reading.facts.get(name, getattr(work, name))), 1)


def _mode(planned: Planned, reading: Reading) -> str:
    if planned.pinned.workload == STATIC:
        return Mode.STATIC
    if _prefill(planned.row):
        return Mode.DISAGGREGATED
    return Mode.MAX_THROUGHPUT if "all_at_once" in reading.facts else Mode.ONLINE


def _load(planned: Planned, reading: Reading) -> dict[str, Any]:
    """The load that the log tells, else that of the plan."""
    facts = reading.facts
    told: dict[str, Any] = {
        name: facts[name] for name in ("concurrency", "request_rate") if name in facts
    }
    if not told and "all_at_once" not in facts:
        told = {"concurrency": planned_concurrency(planned)}
    ranks = int(planned.row["attention_data_parallel"])
    places = math.ceil(float(planned.row["concurrency"]) / ranks)
    more = {} if planned.pinned.workload == STATIC else {"max_num_seqs": places}
    return {"concurrency": "", **told, **more, "num_requests": facts.get("num_requests", "")}


def planned_concurrency(planned: Planned) -> float:
    """Requests that the plan has at once on all its replicas."""
    return float(planned.row["concurrency"]) * float(planned.row.get("replicas") or 1)


def _prefill(row: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of the workers of a disaggregated plan."""
    if row.get("prefill_gpu") is None:
        return {}
    known = INFERENCE.columns
    own = {name: value for name, value in row.items() if name in known and value is not None}
    return {
        "prefill_num_workers": row["prefill_replicas"],
        "decode_num_workers": row["replicas"],
        **{name: value for name, value in own.items() if name.startswith("prefill_")},
        **{f"decode_{name}": value for name, value in own.items() if f"decode_{name}" in known},
    }


def _machine(planned: Planned) -> dict[str, Any]:
    """The node and its network, where the run leaves the node."""
    cluster, row = planned.setting.machine.cluster, planned.row
    cells: dict[str, Any] = {"gpus_per_node": cluster.gpus_per_node}
    if cluster.scale_up.kind is LinkKind.PCIE:
        cells["scale_up_link"] = "pcie"
    if row["num_gpus"] > cluster.gpus_per_node:
        cells["scale_out_gbit_per_s"] = cluster.scale_out.bandwidth / _GIGABIT
        cells["scale_out_per_gpu"] = 1
        cells["nics_per_node"] = max(cluster.gpus_per_node // cluster.scale_out.gpus_per_nic, 1)
    if row.get("host_memory_gib") and cluster.host_memory:
        cells["host_memory_gb"] = cluster.host_memory / _GIGABYTE
    return cells


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, int | float):
        return f"{value:.10g}"
    return str(value)

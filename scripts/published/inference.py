"""What is known of a run of inference from texts and from the files of its benchmark."""

from __future__ import annotations

from planner.confidence.error_classes import has_experts
from planner.validation.inference.cases import served_model
from planner.validation.run_tables import Run
from planner.validation.spec_library import Library, NotPredicted
from published.launch import launch_settings
from published.layouts import split_of
from published.offline import offline_benchmark
from published.setups import PUBLISHED, with_published_setup
from published.tables import convention

_DISAGGREGATED = "disagg"
_POOLS = ("decode_", "prefill_")
# Columns that texts fill where they are empty.
_STATED = (
    "decode_rate", "kv_cache_precision", "request_rate", "num_requests", "max_num_seqs",
    "max_num_batched_tokens", "bits_per_weight", "memory_kind", "input_tokens", "output_tokens",
    "length_scale", "equal_lengths", "equal_prompts", "gpu_memory_gib", "nics_per_node",
    "host_memory_gb", "input_variation", "output_variation", "prefix_cache_hit_rate",
    "enforce_eager",
)  # fmt: skip


def inference_cells(run: Run, library: Library) -> dict[str, str]:
    """The cells of a run that its texts and its benchmark's files fill or change."""
    known = with_published_setup(run)
    given = {name: cell for name, cell in known.cells.items() if cell and name != PUBLISHED}
    stated = {
        name: text for name in _STATED if not run.text(name) and (text := convention(run, name))
    }
    return {**given, **offline_benchmark(run), **stated, **_pools(run), **_host(run),
            **_layout(known, library)}  # fmt: skip


def _pools(run: Run) -> dict[str, str]:
    """The mode of runs with pools of workers, and the workers of each."""
    if not convention(run, "disaggregated"):
        return {}
    prefill, _, decode = convention(run, "workers").partition(" ")
    workers = {"prefill_num_workers": prefill, "decode_num_workers": decode}
    return {"mode": _DISAGGREGATED, **{name: text for name, text in workers.items() if text}}


def _host(run: Run) -> dict[str, str]:
    """What host memory keeps, or a disk."""
    if convention(run, "disk"):
        return {"offload": "disk"}
    kept = [word for word in ("weights", "kv_cache") if convention(run, f"{word}_offload")]
    return {"offload": "+".join(kept)} if kept else {}


def _layout(run: Run, library: Library) -> dict[str, str]:
    """The split of the replicas or pools, what their scheduler is set to, and how stages work."""
    try:
        moe = has_experts(served_model(run, library))
    except NotPredicted:
        return {}
    pools = run.word("mode") == _DISAGGREGATED or bool(convention(run, "disaggregated"))
    prefixes = [name if pools and run.count(f"{name}tensor_parallel") else "" for name in _POOLS]
    splits = {prefix: split_of(run, prefix, moe) for prefix in dict.fromkeys(prefixes)}
    sizes = {name: n for prefix in splits for name, n in splits[prefix][0].cells(prefix).items()}
    split, replicas = splits[prefixes[0]]
    if replicas != 1 and not pools and not run.count("num_gpus"):
        sizes["num_gpus"] = int(replicas * split.replica_gpus)
    changed = {name: str(n) for name, n in sizes.items() if n != (run.count(name) or 1)}
    stages = convention(run, "stages") if split.pipeline > 1 else ""
    return {
        **changed,
        **launch_settings(run, split),
        **({"stages": stages} if stages else {}),
    }

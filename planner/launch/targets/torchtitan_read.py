"""What torchtitan's overrides say, and the TOML files of its earlier versions."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from planner.base.records import record
from planner.errors import LaunchError, PlannerError
from planner.launch.gpus import gpus_of
from planner.launch.targets.model_names import model_named
from planner.launch.targets.torchtitan_models import SHIPPED
from planner.launch.text import Given
from planner.launch.understood import Answers, Found, Reading
from planner.specs.model_catalogue import load_model

# Keys of earlier versions, and what they are called now.
_OLDER = {
    "training.batch_size": "training.local_batch_size",
    "training.tensor_parallel_degree": "parallelism.tensor_parallel_degree",
    "training.data_parallel_degree": "parallelism.data_parallel_shard_degree",
    "training.data_parallel_shard_degree": "parallelism.data_parallel_shard_degree",
    "training.data_parallel_replicate_degree": "parallelism.data_parallel_replicate_degree",
    "training.enable_fp8_linear": "float8.enable_float8_linear",
    "experimental.pipeline_parallel_degree": "parallelism.pipeline_parallel_degree",
    "experimental.pipeline_parallel_schedule": "parallelism.pipeline_parallel_schedule",
    "experimental.context_parallel_degree": "parallelism.context_parallel_degree",
}
_SUBCOMMAND = "activation-checkpoint:"
_KEY = re.compile(r"[a-z_0-9]+(\.[a-z_0-9]+)+")
_MODES = ("none", "selective", "full")
_KINDS = (("float8", "fp8"), ("fp8", "fp8"), ("mxfp8", "fp8"), ("nvfp4", "fp4"))


@record(kw_only=True)
class _Function:
    """What a shipped configuration function sets where no override does."""

    local_batch: int
    sequence_length: int
    recompute: str
    tensor_parallel: int = 1
    expert_parallel: int = 1
    schedule: str = "1F1B"
    precision: str = "bf16"


_FUNCTIONS = {
    "llama3_8b": _Function(local_batch=1, sequence_length=8192, recompute="selective"),
    "llama3_70b": _Function(
        local_batch=8, sequence_length=8192, recompute="full", tensor_parallel=8
    ),
    "llama3_405b": _Function(
        local_batch=2, sequence_length=8192, recompute="full", tensor_parallel=8, precision="fp8"
    ),
    "qwen3_0_6b": _Function(local_batch=4, sequence_length=4096, recompute="selective"),
    "qwen3_1_7b": _Function(local_batch=4, sequence_length=4096, recompute="selective"),
    "qwen3_14b": _Function(local_batch=4, sequence_length=4096, recompute="full"),
    "qwen3_32b": _Function(local_batch=2, sequence_length=4096, recompute="full"),
    "qwen3_30b_a3b": _Function(local_batch=2, sequence_length=4096, recompute="full"),
    "deepseek_v3_16b": _Function(
        local_batch=4,
        sequence_length=4096,
        recompute="selective",
        expert_parallel=8,
        schedule="Interleaved1F1B",
    ),
    "deepseek_v3_671b": _Function(
        local_batch=4,
        sequence_length=4096,
        recompute="selective",
        expert_parallel=2,
        schedule="Interleaved1F1B",
    ),
    "gpt_oss_20b": _Function(local_batch=1, sequence_length=8192, recompute="full"),
    "gpt_oss_120b": _Function(local_batch=1, sequence_length=8192, recompute="full"),
}
# Those of TrainingConfig and ParallelismConfig themselves.
_PLAIN = _Function(local_batch=8, sequence_length=2048, recompute="selective")


def starts(words: Sequence[str]) -> bool:
    """Whether a command starts torchtitan."""
    names = {word.partition("=")[0] for word in words}
    if any(word in ("torchtitan.train", "torchtitan") for word in words[:3]):
        return True
    if names & {"--job.config_file", "--job.config-file"}:
        return True
    return {"--module", "--config"} <= names and any(w.endswith("train.py") for w in words[:3])


def is_of(values: Mapping[str, Any]) -> bool:
    """Whether a document is a configuration of an earlier version."""
    return "model.flavor" in values or {"job.dump_folder", "training.seq_len"} <= set(values)


@dataclass(kw_only=True)
class _Options:
    """Overrides by their dotted names without hyphens, those of a TOML file behind them."""

    given: dict[str, Given] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    is_older: bool = False
    subcommand: str | None = None

    def text(self, name: str) -> str | None:
        given = self.given.get(name)
        if given is None or None in given.texts:
            return None
        self.used.add(given.option)
        return " ".join(text for text in given.texts if text is not None) or "true"

    def number(self, name: str) -> int | None:
        """A whole number, of any sign."""
        try:
            return int((self.text(name) or "").replace("_", ""))
        except ValueError:
            return None


def answers(reading: Reading) -> Answers:
    """What the overrides say; see `planner.launch.understood`.

    Raises
    ------
    LaunchError
        The GPUs cannot be split as it says.
    """
    options = _options(reading.found)
    name = _name(options)
    function = _FUNCTIONS.get(name, _PLAIN)
    defaults: dict[str, str] = {}
    notes: list[str] = []
    asked: list[str] = []
    values: dict[str, Any] = {"adapter": "none", "framework": "torchtitan", "mtp_num_layers": 0}
    model = _model(options, name)
    if model is None:
        asked.append("model")
    else:
        values["model"] = model
    values |= _sizes(options, name, function, defaults)
    values |= _states(options, values, function, defaults)
    gpus = _split(reading, options, values)
    if gpus is None:
        asked.append("num_gpus")
    _batch(options, values, function, gpus, defaults)
    values |= _kinds(options, name, function)
    if model is None and _is_looped(options, function):
        asked.append("virtual_pipeline")
    elif model is not None and values["pipeline_parallel"] > 1:
        values["virtual_pipeline"] = _chunks(options, values, function, model)
    if options.is_older:
        notes.append("torchtitan 0.3.0 reads no TOML: it takes --module, --config and overrides.")
    steps = options.number("training.steps")
    if steps and "global_batch_size" in values:
        values["total_tokens"] = steps * values["global_batch_size"] * values["sequence_length"]
    return Answers(
        workload="train",
        values=values,
        used=frozenset(options.used),
        defaults=defaults,
        asked=tuple(asked),
        notes=tuple(notes),
    )


def _sizes(
    options: _Options, name: str, function: _Function, defaults: dict[str, str]
) -> dict[str, int]:
    """Degrees of parallelism and tokens of a sequence."""
    values: dict[str, int] = {}
    for term, key, default in (
        ("tensor_parallel", "parallelism.tensor_parallel_degree", function.tensor_parallel),
        ("context_parallel", "parallelism.context_parallel_degree", 1),
        ("pipeline_parallel", "parallelism.pipeline_parallel_degree", 1),
        ("expert_parallel", "parallelism.expert_parallel_degree", function.expert_parallel),
        ("sequence_length", "training.seq_len", function.sequence_length),
    ):
        told = options.number(key)
        values[term] = default if told is None else told
        if told is None:
            defaults[term] = f"{default} is that of {name or 'torchtitan'}"
    return values


def _options(found: Found) -> _Options:
    options = _Options()
    for document in (found, *found.files.values()):
        every = {**{each.option: each for each in document.unknown}, **document.options}
        words = [*every, *(str(each.texts[0]) for each in document.positional if each.texts)]
        for word in words:
            if word.startswith(_SUBCOMMAND):
                options.subcommand = word.removeprefix(_SUBCOMMAND)
                options.used.add(word)
        for option, given in every.items():
            is_command = option.startswith("-")
            name = option.lstrip("-").replace("-", "_") if is_command else option
            if _KEY.fullmatch(option):
                options.is_older = True
            options.given.setdefault(_OLDER.get(name, name), given)
    return options


def _name(options: _Options) -> str:
    """The configuration: a function, a TOML file, or the flavor that one says."""
    name = options.text("config") or options.text("job.config_file") or ""
    if options.text("model.flavor"):
        return f"{options.text('model.name') or ''}_{options.text('model.flavor')}".lower()
    return name.rpartition("/")[2].removesuffix(".toml")


def _model(options: _Options, name: str) -> str | None:
    plain = name
    for suffix, _ in _KINDS:
        plain = plain.removesuffix(f"_{suffix}")
    for one in SHIPPED:
        flavor = one.flavor.lower().replace("-", "_").replace(".", "_")
        if plain.lower().replace("-", "_").replace(".", "_") == f"{one.module}_{flavor}":
            return one.model
    named = model_named(plain) if plain else None
    assets = options.text("hf_assets_path")
    return named or (model_named(assets.rstrip("/").rpartition("/")[2]) if assets else None)


def _states(
    options: _Options, values: Mapping[str, Any], function: _Function, defaults: dict[str, str]
) -> dict[str, Any]:
    reshard = options.text("parallelism.fsdp_reshard_after_forward") or "default"
    keeps = reshard == "never" or (reshard == "default" and values["pipeline_parallel"] > 1)
    split = values["tensor_parallel"] > 1
    off = options.text("parallelism.no_enable_sequence_parallel") is not None
    off = off or (options.text("parallelism.enable_sequence_parallel") or "").lower() == "false"
    is_away = (options.text("training.enable_cpu_offload") or "false").lower() == "true"
    recompute = options.subcommand or options.text("activation_checkpoint.mode")
    if recompute not in _MODES:
        recompute = function.recompute
        defaults["recompute"] = f"{recompute} is that of the configuration"
    return {
        "zero_stage": 2 if keeps else 3,
        "sequence_parallel": split and not off,
        "offload": "optimizer_weights" if is_away else "none",
        "recompute": recompute,
        "flash_attention": True,
    }


def _split(reading: Reading, options: _Options, values: dict[str, Any]) -> int | None:
    """GPUs, and over how many of them a copy is sharded."""
    copies = options.number("parallelism.data_parallel_replicate_degree") or 1
    shards = options.number("parallelism.data_parallel_shard_degree") or -1
    one = values["tensor_parallel"] * values["context_parallel"] * values["pipeline_parallel"]
    gpus = gpus_of(reading)
    if gpus is None and shards > 0:
        gpus = copies * shards * one
    if gpus is not None and (gpus % (one * copies) or 0 < shards != gpus // (one * copies)):
        words = f"{copies} copies x {'the rest' if shards < 0 else shards} shards x {one}"
        raise LaunchError(
            f"{reading.found.name}:{reading.found.line}: {gpus} GPUs are not {words} GPUs of a "
            "shard (tensor x context x pipeline): change one of them."
        )
    sharding = shards if shards > 0 or gpus is None else gpus // (one * copies)
    if sharding == 1 and values["context_parallel"] == 1:
        # Copies alone: nothing is sharded.
        values |= {"zero_stage": 0, "data_parallel_replicas": 1}
    else:
        values["data_parallel_replicas"] = copies
    if gpus is not None:
        values["num_gpus"] = gpus
    return gpus


def _batch(
    options: _Options,
    values: dict[str, Any],
    function: _Function,
    gpus: int | None,
    defaults: dict[str, str],
) -> None:
    local = options.number("training.local_batch_size")
    if local is None:
        local = function.local_batch
        defaults["micro_batch_size"] = f"local batch {local} is that of the configuration"
    pp = values["pipeline_parallel"]
    micro = options.number("parallelism.pipeline_parallel_microbatch_size") or 1
    values["micro_batch_size"] = micro if pp > 1 else local
    total = options.number("training.global_batch_size")
    if total is not None and total > 0:
        values["global_batch_size"] = total
    elif gpus is not None:
        one = values["tensor_parallel"] * values["context_parallel"] * pp
        values["global_batch_size"] = local * gpus // one


def _kinds(options: _Options, name: str, function: _Function) -> dict[str, str]:
    precision = function.precision
    for suffix, kind in _KINDS:
        if name.endswith(f"_{suffix}"):
            precision = kind
    converters = f"{options.text('model.converters')} {options.text('float8.enable_float8_linear')}"
    if "float8" in converters or "true" in converters:
        precision = "fp8"
    return {"precision": precision}


def _is_looped(options: _Options, function: _Function) -> bool:
    pp = options.number("parallelism.pipeline_parallel_degree") or 1
    schedule = options.text("parallelism.pipeline_parallel_schedule") or function.schedule
    return pp > 1 and "1F1B" != schedule != "GPipe"


def _chunks(options: _Options, values: Mapping[str, Any], function: _Function, model: str) -> int:
    """Stages of each rank."""
    each = options.number("parallelism.pipeline_parallel_layers_per_stage")
    if each is None:
        return 2 if _is_looped(options, function) else 1
    try:
        layers = load_model(model).num_hidden_layers
    except PlannerError:
        return 1
    for end in ("first", "last"):
        less = options.number(f"parallelism.pipeline_parallel_{end}_stage_less_layers")
        layers += 1 if less is None else less
    return max(math.ceil(layers / each) // int(values["pipeline_parallel"]), 1)

"""Models that torchtitan ships, and a configuration function for those that it does not."""

from __future__ import annotations

import math
from itertools import count

from planner.base.enums import AttentionKind
from planner.base.records import record
from planner.errors import LaunchError
from planner.estimators.training.sharding import chunk_split
from planner.launch.model_shape import config_json, without_mtp_modules
from planner.launch.option_table import option_aliases, shipped_rows
from planner.launch.target import LaunchJob, Value, fill_template
from planner.specs.catalogue import load_model
from planner.specs.model import ModelSpec

MODULE = "planned_config"
SUFFIXES = {"fp8": "_float8", "fp4": "_nvfp4"}


@record(kw_only=True)
class ShippedModel:
    """A model that torchtitan 0.3.0 ships; ``config`` is its bf16 function, empty without one."""

    module: str
    flavor: str
    model: str
    config: str = ""


_ROWS = shipped_rows("models/torchtitan.csv")
SHIPPED = tuple(
    ShippedModel(**{name: row[name] for name in ("module", "flavor", "model", "config")})
    for row in _ROWS
)
FUNCTIONS = {
    row["function"]: {key: int(text) if text.isdecimal() else text for key, text in row.items()}
    for row in _ROWS
    if row["function"]
}
"""Configuration functions by name, with their defaults."""


def shipped_model_of(model: ModelSpec) -> ShippedModel | None:
    """Return the shipped model with the same sizes as ``model``; None if there is none."""
    without_mtp = without_mtp_modules(model)
    for shipped_model in SHIPPED:
        spec = load_model(shipped_model.model)
        compared = ("hidden_size", "vocab_size", "layer_groups", "tie_word_embeddings")
        if all(getattr(spec, name) == getattr(without_mtp, name) for name in compared):
            return shipped_model
    return None


def config_function_name(job: LaunchJob) -> str:
    """Return the name of a configuration function: model name plus suffix of the precision."""
    words = "".join(
        character if character.isalnum() else "_" for character in job.model.name.lower()
    ).strip("_")
    name = words if words[:1].isalpha() else f"model_{words}"
    return name + SUFFIXES.get(job["precision"], "")


def custom_config_module(job: LaunchJob) -> str:
    """Return the Python text of the configuration module of a job.

    Raises LaunchError if torchtitan has no model whose sizes could be those of the plan.
    """
    shipped_model = shipped_model_of(job.model)
    module = "llama3" if shipped_model is None else shipped_model.module
    converters = _converters(job)
    converter_lines = "".join(f"\n        {converter}," for converter in converters)
    values: dict[str, Value] = {
        "module": module,
        "base": option_aliases("torchtitan base")[module],
        "function": config_function_name(job),
        "flavor": "" if shipped_model is None else shipped_model.flavor,
        "sizes": _sizes_of(job.model) if shipped_model is None else (),
        "quantizers": ", ".join(sorted({converter.partition(".")[0] for converter in converters})),
        "converters": f"[{converter_lines}\n    ]" if converters else "[]",
        "stages": [f"{modules!r}," for modules in stage_modules_of(job) or ()],
    }
    return fill_template("torchtitan_config.txt", values, blank_lines=2)


def _converters(job: LaunchJob) -> list[str]:
    """Return the converters that quantize matrix products to 8 or 4 bits; may be empty."""
    has_experts = bool(job.model.num_experts)
    compile_argument = "model_compile_enabled=True"
    if job["precision"] == "fp4":
        return [f'NVFP4LinearConverter.Config(fqns=["layers"], {compile_argument})']
    if job["precision"] != "fp8":
        return []
    is_blackwell = job.gpu.architecture == "blackwell"
    default = "mxfp8" if is_blackwell else "tensorwise"
    recipe = default if job["fp8_recipe"] == "auto" else str(job["fp8_recipe"])
    if recipe == "mxfp8":
        linear = f"MXFP8LinearConverter.Config({compile_argument})"
        grouped_experts = f"MXFP8GroupedExpertsConverter.Config({compile_argument})"
    else:
        excluded = '["lm_head", "router.gate"]' if has_experts else '["lm_head"]'
        linear = f"Float8LinearConverter.Config(filter_fqns={excluded}, {compile_argument})"
        grouped_experts = f"Float8GroupedExpertsConverter.Config({compile_argument})"
    return [linear, grouped_experts] if has_experts else [linear]


def _sizes_of(model: ModelSpec) -> list[str]:
    """Return the sizes of a Llama-like model as lines of Python, ``NAME = value``.

    Raises LaunchError if the model is not like Llama.
    """
    config = config_json(model) or {}
    attention = model.layer_groups[0].attention
    is_llama = config.get("model_type") == "llama" and not config["attention_bias"]
    if not is_llama or attention is None or attention.kind is not AttentionKind.STANDARD:
        raise LaunchError(
            f"{model.name}: torchtitan 0.3.0 ships no model of its kind. It has Llama 3, Qwen3, "
            "DeepSeek-V3, gpt-oss, and models like Llama of other sizes: choose another target."
        )
    heads, hidden = attention.num_attention_heads, model.hidden_size
    if attention.head_dim * heads != hidden:
        raise LaunchError(
            f"{model.name}: torchtitan's Llama has heads of hidden size / heads = "
            f"{hidden / heads:g}, the plan's have {attention.head_dim}: choose another target."
        )
    values = {
        "LAYERS": model.num_hidden_layers,
        "HIDDEN": hidden,
        "HEADS": heads,
        "KEY_VALUE_HEADS": attention.num_key_value_heads,
        "FEED_FORWARD": config["intermediate_size"],
        "VOCABULARY": model.vocab_size,
        "POSITIONS": config.get("max_position_embeddings", 131072),
        "TIED": model.tie_word_embeddings,
    }
    return [f"{name} = {value!r}" for name, value in values.items()]


def needs_custom_config(job: LaunchJob) -> bool:
    """Return whether a job needs a generated configuration, as no override expresses it."""
    shipped_model = shipped_model_of(job.model)
    is_expressible = (
        job["precision"] not in ("fp8", "fp4")
        and shipped_model is not None
        and shipped_model.config
    )
    return not is_expressible or stage_modules_of(job) is not None


def _stage_sizes(job: LaunchJob) -> list[int]:
    """Layers of each of torchtitan's stages: the chunks of the plan."""
    pp, vp = int(job["pipeline_parallel"]), int(job["virtual_pipeline"])
    return chunk_split(without_mtp_modules(job.model), pp, vp)


def split_quantities(job: LaunchJob) -> dict[str, int] | None:
    """Return the option values that split the layers as planned; None if no option can."""
    sizes = _stage_sizes(job)
    layers, stages = sum(sizes), len(sizes)
    for first, last in ((0, 0), (1, 1), (1, 0), (0, 1)):
        layers_per_stage = math.ceil((layers + first + last) / stages)
        is_counted = math.ceil((layers + first + last) / layers_per_stage) == stages
        if is_counted and split_layers(layers, stages, first, last) == sizes:
            return {"layers_per_stage": layers_per_stage, "first_less": first, "last_less": last}
    return None


def split_layers(layers: int, stages: int, first: int, last: int) -> list[int]:
    """Return the layers of each stage in torchtitan's split; empty if there are too few layers.

    >>> split_layers(10, 4, 1, 1)
    [2, 3, 3, 2]
    """
    minimum, num_larger = divmod(layers + first + last, stages)
    if minimum < max(first, last, 1):
        return []
    sizes = [minimum + (stage < num_larger) for stage in range(stages)]
    sizes[0] -= first
    sizes[-1] -= last
    return sizes


def stage_modules_of(job: LaunchJob) -> list[list[str]] | None:
    """Return the module names of each pipeline stage; None if options express the split."""
    if job["pipeline_parallel"] == 1 or split_quantities(job) is not None:
        return None
    layers = count()
    modules = [[f"layers.{next(layers)}" for _ in range(size)] for size in _stage_sizes(job)]
    modules[0].insert(0, "tok_embeddings")
    modules[-1] += ["norm", "lm_head"]
    return modules

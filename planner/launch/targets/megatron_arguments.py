"""Read the command-line arguments of Megatron-LM, its versions and its forks."""

from __future__ import annotations

from collections.abc import Mapping

from planner.base.software_enums import MODULES, RecomputedModules
from planner.errors import LaunchError
from planner.launch.option_table import (
    MutableQuantities,
    OptionRole,
    OptionTable,
    Quantity,
)
from planner.launch.read.expression_rows import apply_read_rows
from planner.launch.read.parsed_launch import (
    LaunchSettings,
    OptionReader,
    require_split,
    total_gpus,
)
from planner.launch.read.training_values import model_degrees, set_unlisted_optimizer
from planner.launch.target import option_texts, unreadable_counts
from planner.launch.targets.megatron_shape import (
    chunks_of_layout,
    read_pipeline_layout,
    read_sizes,
)

TABLE = OptionTable.load("megatron-lm")
_EXPERT_PARAMETERS = {
    row.parameter
    for row in TABLE.rows
    if "-moe-" in row.option and row.role is not OptionRole.READS
}
_LAYOUT, _CHUNKS = "--pipeline-model-parallel-layout", "--num-virtual-stages-per-pipeline-rank"
EXPERT_SPLIT = "--expert-tensor-parallel-size"
_LAYERS_OF_CHUNK = "--num-layers-per-virtual-pipeline-stage"
_CONTRADICTIONS = (
    *(("--bf16", "--fp16"), (_LAYERS_OF_CHUNK, _CHUNKS), (_LAYOUT, _CHUNKS)),
    *((_LAYOUT, _LAYERS_OF_CHUNK), ("--train-iters", "--train-samples")),
)
# Modules that selective recomputation repeats by default: with experts the last two.
_DEFAULT_MODULES = ("core_attn", "layernorm+moe_act", "layernorm+mla_up_proj+moe_act")


def read_megatron_arguments(reading: OptionReader, framework: str) -> LaunchSettings:
    """Read the settings of a command with Megatron-LM's arguments, for ``framework``.

    ``framework`` is Megatron-LM, or a fork or library that takes the same arguments.
    Raises LaunchError if they contradict each other, or the number of GPUs.
    """
    _refuse_contradictions(reading)
    settings = option_texts(reading, framework)
    values = settings.values
    values["framework"] = framework
    quantities: MutableQuantities = {"tool": framework, **read_sizes(reading, settings.notes)}
    layers = reading.number("--num-layers") or reading.number("--encoder-num-layers")
    layout = reading.text(_LAYOUT)
    quantities["layout_chunks"] = len(chunks_of_layout(layout)) if layout else None
    quantities["selected"] = _selected_modules(reading)
    apply_read_rows(reading, OptionTable.load("megatron-stages"), settings, quantities)
    set_unlisted_optimizer(reading, TABLE, settings)
    if "dist_muon" in (reading.text("--optimizer") or ""):
        values["zero_stage"] = "1"  # its states are sharded without another option
    layout = read_pipeline_layout(reading, values, layers)
    settings.set("pipeline_layout", layout)
    # A layout with modules of multi-token prediction implies that the model has them.
    quantities["layout_mtp"] = "".join(chunks_of_layout(layout)).count("m") if layout else 0
    experts = int(values.get("expert_parallel", 1))
    num_gpus, degrees = total_gpus(reading.command.resources), model_degrees(settings)
    require_split(reading, num_gpus, **degrees)
    if experts > 1:  # groups of experts divide the GPUs of a stage
        split = reading.number(EXPERT_SPLIT) or degrees["tensor_parallel"]
        stages = {"pipeline_parallel": degrees["pipeline_parallel"], "expert_parallel": experts}
        require_split(reading, num_gpus, **stages, expert_tensor_parallel=split)
    shape = apply_read_rows(reading, TABLE, settings, quantities)
    if reading.value("hybrid_pattern") is not None:
        shape = None
    settings.missing += unreadable_counts(reading, TABLE, values)
    if shape is not None and not shape.get("num_experts"):
        settings.values = without_experts(values)
    if shape is None or not shape["vocab_size"]:
        settings.mark_missing("model")
    settings.values = {name: value for name, value in settings.values.items() if value is not None}
    return settings.build(shape=shape, used_options=TABLE.used)


def without_experts(values: Mapping[str, Quantity]) -> dict[str, Quantity]:
    """The values without parameters of experts, which do nothing in a dense model."""
    return {name: value for name, value in values.items() if name not in _EXPERT_PARAMETERS}


def _refuse_contradictions(reading: OptionReader) -> None:
    """Raise LaunchError if the command sets two options that exclude each other."""
    for first, second in _CONTRADICTIONS:
        if reading.has(first) and reading.has(second):
            lines = sorted(reading.command.options[name].line for name in (first, second))
            raise LaunchError(
                f"{reading.command.name}:{lines[1]}: {first} and {second} are both set (line "
                f"{lines[0]}): Megatron-LM refuses that; remove one of them."
            )


def _selected_modules(reading: OptionReader) -> str | None:
    """Return the modules that selective recomputation repeats; None for those by default."""
    modules = {*(reading.value("recompute_modules") or "core_attn").split()} & {*MODULES}
    word = "+".join(sorted(modules or {"core_attn"}))
    if not modules <= {"mlp", "moe"}:
        word = RecomputedModules.canonical_word(word)
    return None if word in _DEFAULT_MODULES else word

"""Read the command-line arguments of Megatron-LM, its versions and its forks."""

from __future__ import annotations

from collections.abc import Mapping

from planner.base.software_enums import MODULES, RecomputedModules
from planner.errors import LaunchError
from planner.launch.option_table import (
    OptionRole,
    OptionTable,
    Quantity,
)
from planner.launch.read.parsed_launch import (
    LaunchSettings,
    OptionReader,
    SettingsBuilder,
    require_split,
    total_gpus,
)
from planner.launch.read.training_values import set_unlisted_optimizer
from planner.launch.target import option_texts, unreadable_counts
from planner.launch.targets.megatron_shape import (
    chunks_of_layout,
    read_pipeline_layout,
    read_shape,
)

TABLE = OptionTable.load("megatron-lm")
_EXPERT_PARAMETERS = {
    row.parameter
    for row in TABLE.rows
    if "-moe-" in row.option and row.role is not OptionRole.READS
}
_EQUAL_STAGES = ("Megatron-LM", "Megatron-Bridge", "NeMo")
_LAYOUT, _CHUNKS = "--pipeline-model-parallel-layout", "--num-virtual-stages-per-pipeline-rank"
EXPERT_SPLIT = "--expert-tensor-parallel-size"
_LAYERS_OF_CHUNK = "--num-layers-per-virtual-pipeline-stage"
_OTHER_SPLITS = (_LAYOUT, *(f"--decoder-{end}-pipeline-num-layers" for end in ("first", "last")))
# Each of these options counts one more layer in its stage.
_COUNTED_IN_SPLIT = tuple(
    f"--account-for-{part}-in-pipeline-split" for part in ("embedding", "loss")
)
_CONTRADICTIONS = (
    *(("--bf16", "--fp16"), (_LAYERS_OF_CHUNK, _CHUNKS), (_LAYOUT, _CHUNKS)),
    *((_LAYOUT, _LAYERS_OF_CHUNK), ("--train-iters", "--train-samples")),
)
_REQUIRED_SIZES = ("num_hidden_layers", "hidden_size", "num_attention_heads")
# Modules that selective recomputation repeats by default: with experts the last two.
_DEFAULT_MODULES = ("core_attn", "layernorm+moe_act", "layernorm+mla_up_proj+moe_act")
_SAME_AS_DENSE = "the tensor parallelism of the rest"
_DROPOUT = 0.1
# The dispatcher of "auto" in each profile: the one that its published runs used.
_DEFAULT_DISPATCHER = {"Megatron-LM": "alltoall", "Megatron-Bridge": "flex", "NeMo": "flex"}
_DISPATCHER, _MEGATRON_DISPATCHER = "--moe-token-dispatcher-type", "allgather"


_FP8_WEIGHTS, _BF16_GRADIENTS = "--fp8-param-gather", "--grad-reduce-in-bf16"


def read_megatron_arguments(reading: OptionReader, framework: str) -> LaunchSettings:
    """Read the settings of a command with Megatron-LM's arguments, for ``framework``.

    ``framework`` is Megatron-LM, or a fork or library that takes the same arguments.
    Raises LaunchError if they contradict each other, or the number of GPUs.
    """
    _refuse_contradictions(reading)
    settings = option_texts(reading, framework)
    values = settings.values
    values["framework"] = framework
    shape, shape_notes = read_shape(reading, TABLE)
    layers = int(shape["num_hidden_layers"] or 0) or None
    settings.notes += shape_notes
    values["virtual_pipeline"] = virtual_pipeline_chunks(reading, layers, settings.notes)
    if values.setdefault("precision", "bf16") == "fp16" and not reading.has(_BF16_GRADIENTS):
        values.pop("main_grads_precision", None)  # fp32, as its profile has them
    values |= read_recomputation(reading, int(values["virtual_pipeline"] or 1))
    set_unlisted_optimizer(reading, TABLE, settings)
    if "dist_muon" in (reading.text("--optimizer") or ""):
        values["zero_stage"] = "1"  # its states are sharded without another option
    layout = read_pipeline_layout(reading, values, layers)
    settings.set("pipeline_layout", layout)
    # A layout with modules of multi-token prediction implies that the model has them.
    mtp_layers = "".join(chunks_of_layout(layout)).count("m") if layout else 0
    if mtp_layers and not reading.has("--mtp-num-layers"):
        values["mtp_num_layers"] = str(mtp_layers)
    rates = map(reading.amount, ("--attention-dropout", "--hidden-dropout"))
    values["dropout"] = str(any((_DROPOUT if r is None else r) > 0 for r in rates)).lower()
    num_gpus = total_gpus(reading.command.resources)
    settings.set("num_gpus", num_gpus)
    tensor = int(values.get("tensor_parallel") or 1)
    context = int(values.get("context_parallel") or 1)
    stages = int(values.get("pipeline_parallel") or 1)
    require_split(
        reading,
        num_gpus,
        tensor_parallel=tensor,
        context_parallel=context,
        pipeline_parallel=stages,
    )
    set_expert_split(reading, shape, settings, tensor)
    if (experts := int(values.get("expert_parallel", 1))) > 1:
        # Expert-parallel groups must divide the GPUs of a stage.
        degrees = {"pipeline_parallel": stages, "expert_parallel": experts}
        expert_split = reading.number(EXPERT_SPLIT) or tensor
        require_split(reading, num_gpus, **degrees, expert_tensor_parallel=expert_split)
    values["token_dispatcher"] = read_token_dispatcher(reading, framework, settings)
    _require_stages(reading, layers, stages, framework)
    ranks = (num_gpus or 0) // (tensor * context * stages)
    micro = reading.number("--micro-batch-size")
    if not reading.has("--global-batch-size") and num_gpus is not None and micro is not None:
        reason = f"{micro * ranks}, a micro-batch of each data-parallel rank"
        settings.assume("global_batch_size", micro * ranks, reason)
    settings.set("total_tokens", total_tokens_of(reading))
    if reading.value("precision") is None:
        settings.notes.append(
            "Neither --bf16 nor --fp16 is set: Megatron-LM then computes in 32 bit, which is not "
            "predicted; planner assumes bf16."
        )
    if reading.value("hybrid_pattern") is not None:
        shape["num_hidden_layers"] = None
        settings.notes.append(
            "Layers of several kinds (--hybrid-layer-pattern) are not read: name the model."
        )
    if framework == "Megatron-LM" and reading.has(_FP8_WEIGHTS):
        # NeMo's profile has weights in 8 bits only; gradients stay as in Megatron-LM.
        values.setdefault("main_grads_precision", "fp32")
        values["framework"] = "NeMo"
        settings.notes.append(
            f"{_FP8_WEIGHTS}: predicted as NeMo, which also stores weights in 8 bits only."
        )
    is_complete = all(shape[name] for name in _REQUIRED_SIZES)
    settings.missing += ["num_gpus"] * (num_gpus is None) + unreadable_counts(
        reading, TABLE, values
    )
    if is_complete and not shape.get("num_experts"):
        settings.values = without_experts(values)
    if not is_complete or not shape["vocab_size"]:
        settings.mark_missing("model")
    extra_options = {name for name in reading.command.options if name.startswith(_USED_PREFIXES)}
    settings.values = {name: value for name, value in settings.values.items() if value is not None}
    return settings.build(
        shape=shape if is_complete else None, used_options=TABLE.used | extra_options
    )


def without_experts(values: Mapping[str, Quantity]) -> dict[str, Quantity]:
    """The values without parameters of experts, which do nothing in a dense model."""
    return {name: value for name, value in values.items() if name not in _EXPERT_PARAMETERS}


def set_expert_split(
    reading: OptionReader, shape: Mapping[str, object], settings: SettingsBuilder, tensor: int
) -> None:
    """Set expert tensor parallelism: the option's value, else the tensor parallelism.

    NVIDIA/Megatron-LM, megatron/core/parallel_state.py and megatron/training/arguments.py:
    ``expert_tensor_parallel_size`` that is None becomes ``tensor_model_parallel_size``.
    """
    is_sparse = shape.get("num_experts") or int(settings.values.get("expert_parallel", 1)) > 1
    settings.values.pop("expert_tensor_parallel", None)
    if is_sparse and reading.has(EXPERT_SPLIT):
        settings.set("expert_tensor_parallel", reading.number(EXPERT_SPLIT))
    elif is_sparse and tensor > 1:
        settings.assume("expert_tensor_parallel", tensor, f"{tensor}, {_SAME_AS_DENSE}")


def _require_stages(
    reading: OptionReader, layers: int | None, num_stages: int, framework: str
) -> None:
    """Raise LaunchError if stages cannot have equal layers and the file sets no other split."""
    if framework not in _EQUAL_STAGES or not layers or any(map(reading.has, _OTHER_SPLITS)):
        return
    layers += sum(map(reading.has, _COUNTED_IN_SPLIT))
    if layers % num_stages:
        raise LaunchError(
            f"{reading.position}: {layers} layers are no {num_stages} equal "
            f"stages, which {framework} refuses: add --pipeline-model-parallel-layout, or count "
            "the embedding and the loss (--account-for-embedding-in-pipeline-split)."
        )


def _refuse_contradictions(reading: OptionReader) -> None:
    """Raise LaunchError if the command sets two options that exclude each other."""
    for first, second in _CONTRADICTIONS:
        if reading.has(first) and reading.has(second):
            lines = sorted(reading.command.options[name].line for name in (first, second))
            raise LaunchError(
                f"{reading.command.name}:{lines[1]}: {first} and {second} are both set (line "
                f"{lines[0]}): Megatron-LM refuses that; remove one of them."
            )


def virtual_pipeline_chunks(
    reading: OptionReader, layers: int | None, notes: list[str]
) -> int | None:
    """Return the chunks of layers per pipeline stage; None if not set. May add to ``notes``.

    Raises LaunchError if the chunks of a layout are no multiple of the stages.
    """
    stages = reading.number("--pipeline-model-parallel-size") or 1
    specified, layout = reading.number(_CHUNKS), reading.text(_LAYOUT)
    layers_per_chunk = reading.number(_LAYERS_OF_CHUNK)
    if layout:
        chunks = chunks_of_layout(layout)
        if len(chunks) % stages:
            raise LaunchError(
                f"{reading.command.name}: {_LAYOUT} has {len(chunks)} "
                f"chunks, which {stages} stages do not share."
            )
        return len(chunks) // stages
    if specified or not layers_per_chunk or not layers:
        return specified
    counted_layers = layers + sum(map(reading.has, _COUNTED_IN_SPLIT))
    if counted_layers % (stages * layers_per_chunk):
        notes.append(
            f"{layers} layers are not a multiple of {stages} stages x {layers_per_chunk} layers."
        )
    return max(counted_layers // (stages * layers_per_chunk), 1)


def read_token_dispatcher(
    reading: OptionReader, framework: str, settings: SettingsBuilder
) -> str | None:
    """Return the experts' token dispatcher; None if it is the framework's default."""
    default, specified = _DEFAULT_DISPATCHER.get(framework), reading.text(_DISPATCHER)
    if default is None or not (specified or reading.number("--num-experts")):
        return None
    experts = int(settings.values.get("expert_parallel") or 1)
    if specified is None and framework == "Megatron-LM" and experts > 1:
        specified = _MEGATRON_DISPATCHER
        settings.defaults["token_dispatcher"] = f"{specified}, Megatron-LM's default"
    # alltoall_seq of older releases sends the same bytes.
    dispatcher = (specified or default).removesuffix("_seq")
    return None if dispatcher == default else dispatcher


def read_recomputation(reading: OptionReader, chunks: int) -> dict[str, Quantity | None]:
    """Return the recomputed modules, and the recomputed layers of a pipeline stage."""
    recompute = reading.value("recompute")
    values: dict[str, Quantity | None] = {"recompute_modules": None, "recompute_num_layers": None}
    if recompute == "selective":
        modules = set((reading.value("recompute_modules") or "core_attn").split()) & {*MODULES}
        if modules and modules <= {"mlp", "moe"}:
            return {**values, "recompute": "feed_forward"}
        modules_word = RecomputedModules.canonical_word("+".join(sorted(modules or {"core_attn"})))
        return (
            values
            if modules_word in _DEFAULT_MODULES
            else {**values, "recompute_modules": modules_word}
        )
    layers = reading.number("--recompute-num-layers")
    if recompute == "full" and layers and reading.value("recompute_method") == "block":
        values["recompute_num_layers"] = layers * chunks
    return values


def total_tokens_of(reading: OptionReader) -> float | None:
    """Return the tokens of the full run; None if the file does not determine its length."""
    length, steps, sequences, batch = map(
        reading.number, ("--seq-length", "--train-iters", "--train-samples", "--global-batch-size")
    )
    if sequences is None and steps is not None and batch is not None:
        sequences = steps * batch
    return None if sequences is None or length is None else float(sequences * length)


_USED_PREFIXES = (
    *("--use-", "--data-parallel-", "--moe-", "--qk-", "--account-for-", "--recompute-"),
    *("--tokenizer-", "--train-", "--vocab-", "--num-", "--fp8-"),
)
"""Prefixes of further options that count as used, in addition to those of the table."""

"""NeMo AutoModel: the YAML of a recipe that ``automodel`` or ``torchrun`` starts, read-only.

Source: NVIDIA-NeMo/Automodel at 36044ad, ``nemo_automodel/recipes/_dist_utils.py``,
``components/distributed`` (``config.py``, ``mesh_utils.py``, ``pipelining``, ``parallelizer.py``),
``components/training/step_scheduler.py``, ``components/_peft`` and ``cli/app.py``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from math import prod

from planner.documents.shell.edits import ParsedOption
from planner.errors import LaunchError, PlannerError
from planner.launch.read.hf_trainer.derive_settings import UNPACKED
from planner.launch.read.import_launch import MODEL_SPLITS, SPLITS
from planner.launch.read.parsed_launch import (
    OptionReader,
    ParsedCommand,
    SettingsBuilder,
    flag,
    number,
    option_text,
    require_split,
    total_gpus,
)
from planner.launch.targets.training_reader import (
    RowsHook,
    make_reader_target,
    set_total_tokens,
    strip_dashes,
)
from planner.launch.wrappers.read_resources import parse_gpu_name
from planner.specs.catalogue import load_model

_RECIPES = ("FinetuneRecipeForNextTokenPrediction", "FinetuneRecipeForVLM",
            "BenchmarkingRecipeForNextTokenPrediction")  # fmt: skip
_UNSUPPORTED_TRAINING = (
    "teacher_model.",
    "peft.use_dora",
    "qat.",
    "freeze_config.freeze_language_model",
)
_MODELS = ("model.pretrained_model_name_or_path", "model.config.pretrained_model_name_or_path",
           "model.config.name_or_path", "model.config")  # fmt: skip
_LENGTHS = ("packed_sequence.packed_sequence_size", "packed_sequence.pack_size",
            "dataset.seq_len", "dataset.seq_length", "dataset.max_length")  # fmt: skip
_PIPELINES = ("distributed.pipeline.", "autopipeline.")
_RECOMPUTE_KEYS = ("distributed.activation_checkpointing", "parallelizer.activation_checkpointing")
_RESHARD_KEYS = ("distributed.reshard_after_forward", "distributed.moe.reshard_after_forward")
_BATCHES = ("micro_batch_size", "global_batch_size")
_GPUS_PER_NODE = 8
_GB200_GPUS_PER_NODE = 4
# Layers that equal chunks may lack: embedding and logits count as that many.
_MAX_MISSING_LAYERS = 3


def _add_unlisted_settings(
    reading: OptionReader, settings: SettingsBuilder, apply_rows: RowsHook
) -> None:
    """Set what the option table does not read.

    Raises LaunchError if the recipe trains something that is not predicted.
    """
    _refuse_unsupported(reading)
    for split in SPLITS:
        settings.values.setdefault(split, 1)
    settings.require("model", _read_model(reading))
    _set_adapter(reading, settings)
    _set_states(reading, settings)
    _set_gpus(reading, settings)
    _set_batch(reading, settings)


def _merge_config_files(command: ParsedCommand) -> Mapping[str, ParsedOption]:
    """Return the options of the configuration file, overridden by the command's options.

    Raises LaunchError if that file is missing.
    """
    options: dict[str, ParsedOption] = {
        strip_dashes(option.option): option for option in command.unknown
    }
    options |= command.options
    config_options = [
        options[name] for name in ("--config", "-c", "c", "config") if name in options
    ]
    if not command.positional and not config_options:
        return options
    texts = [option.single for option in (*config_options, *command.positional)]
    config_names = [word for word in texts if word and word.endswith((".yaml", ".yml"))]
    document = next((command.files[name] for name in config_names if name in command.files), None)
    if document is None:
        name = config_names[0] if config_names else "its YAML"
        raise LaunchError(
            f"{command.name}:{command.line}: {name} sets what NeMo AutoModel trains and is not in "
            "this folder. Put it there, or use that file with --from."
        )
    return {**document.options, **options}


def _refuse_unsupported(reading: OptionReader) -> None:
    """Raise LaunchError if the recipe, training method or model is not predicted."""
    recipe = option_text(reading, "recipe", "recipe._target_")
    names = (name for name in reading.command.options if name.startswith(_UNSUPPORTED_TRAINING))
    unsupported = next((name for name in names if flag(reading, name)), "")
    if recipe and not any(supported.lower() in recipe for supported in _RECIPES):
        unsupported = f"recipe {reading.text('recipe') or reading.text('recipe._target_')}"
    num_layers, model = number(reading, "model.config.num_hidden_layers"), _read_model(reading)
    if num_layers and (model is None or _num_layers(model) not in (num_layers, None)):
        unsupported = "model of sizes in the file (model.config)"
    if unsupported:
        raise LaunchError(
            f"{reading.position}: NeMo AutoModel's {unsupported} is not predicted, only "
            "recipes that "
            "fine-tune or pretrain one published model."
        )


def _read_model(reading: OptionReader) -> str | None:
    return next(
        (text for key in _MODELS if option_text(reading, key) and (text := reading.text(key))), None
    )


def _num_layers(model: str) -> int | None:
    """Return the number of layers of the model; None if the model is unknown."""
    try:
        return load_model(model).num_hidden_layers
    except PlannerError:
        return None


def _set_adapter(reading: OptionReader, settings: SettingsBuilder) -> None:
    """Set whether the vision tower is frozen, and the LoRA adapter with rank and matrices."""
    values = settings.values
    if option_text(reading, "recipe", "recipe._target_") and _RECIPES[1].lower() in str(
        option_text(reading, "recipe", "recipe._target_")
    ):
        is_frozen = flag(reading, "freeze_config.freeze_vision_tower", default=True)
        values["freeze_vision_tower"] = is_frozen
    if not any(name.startswith("peft.") for name in reading.command.options):
        return
    values["adapter"] = "qlora" if flag(reading, "quantization.load_in_4bit") else "lora"
    settings.assume("lora_rank", 8, "no peft.dim: 8 is NeMo AutoModel's")
    target_modules = reading.command.options.get("peft.target_modules")
    modules = (
        [text.rpartition(".")[2] for text in target_modules.texts if text] if target_modules else []
    )
    is_all = not modules or {*modules} & {"*_proj", "*"}
    values["lora_targets"] = "all_linear" if is_all else ",".join(modules)
    # Modules of experts are no linear layers: only a pattern that matches all covers them.
    values["expert_adapters"] = "each" if "*" in modules else "none"


def _set_states(reading: OptionReader, settings: SettingsBuilder) -> None:
    """Set the ZeRO stage, recomputation, offloading, the loss kernel and the optimizer."""
    values = settings.values
    strategy = option_text(reading, "distributed.strategy", "distributed._target_") or ""
    if "ddp" in strategy:
        stage = 0
    elif "megatron" in strategy or strategy == "mfsdp":
        stage = number(reading, "distributed.zero_dp_strategy") or 3
    else:
        is_model_split = int(values["expert_parallel"]) > 1 or int(values["pipeline_parallel"]) > 1
        keys = _RESHARD_KEYS if int(values["expert_parallel"]) > 1 else _RESHARD_KEYS[:1]
        stage = 3 if flag(reading, *keys, default=not is_model_split) else 2
    values["zero_stage"] = stage
    recompute = option_text(reading, *_RECOMPUTE_KEYS) or "false"
    values["recompute"] = {"true": "full", "false": "none"}.get(recompute, recompute)
    offload_options = [
        name for name in reading.command.options if name.startswith("distributed.offload_policy")
    ]
    values["offload"] = "optimizer_weights" if option_text(reading, *offload_options) else "none"
    if values.get("precision") != "fp8":
        values.pop("fp8_recipe", None)
    loss = option_text(reading, "loss_fn._target_") or ""
    if "maskedcrossentropy" in loss and flag(reading, "loss_fn.fp32_upcast", default=True):
        values["loss_kernel"] = "eager"
    values["optimizer"] = "adam"
    settings.set_optimizer(option_text(reading, "optimizer._target_") or "adam")


def _set_gpus(reading: OptionReader, settings: SettingsBuilder) -> None:
    """Set the GPUs: of the launcher, else of the layout, else the number the authors use."""
    values = settings.values
    sizes = {split: int(values[split]) for split in MODEL_SPLITS}
    num_gpus = total_gpus(reading.command.resources) or number(reading, "--nproc-per-node")
    require_split(reading, num_gpus, **sizes)
    data_parallel = number(reading, "distributed.dp_size")
    name, _, accelerators = (option_text(reading, "skypilot.accelerators") or "").partition(":")
    if name and (gpu := parse_gpu_name(name)):
        values["gpu"] = gpu
    if num_gpus is None and name:
        num_gpus = (int(accelerators) if accelerators.isdecimal() else 1) * (
            number(reading, "skypilot.num_nodes") or 1
        )
    if num_gpus is None and data_parallel:
        num_gpus = data_parallel * prod(sizes.values())
    num_nodes = number(reading, "benchmark.num_nodes", "ci.nodes")
    if num_gpus is None and num_nodes:
        is_gb200 = "gb200" in (option_text(reading, "ci.cluster_tag") or "")
        gpus_per_node = number(reading, "ci.nproc_per_node") or (
            _GB200_GPUS_PER_NODE if is_gb200 else _GPUS_PER_NODE
        )
        ranks, remainder = divmod(num_nodes * gpus_per_node, prod(sizes.values()))
        micro_batch, batch = (int(values.get(name) or 1) for name in _BATCHES)
        if not remainder and not batch % (micro_batch * ranks):
            num_gpus = num_nodes * gpus_per_node
            settings.defaults["num_gpus"] = (
                f"{num_nodes} x {gpus_per_node}, on which its authors run it"
            )
    if num_gpus is None:
        settings.mark_missing("num_gpus")
    settings.set("num_gpus", num_gpus)


def _set_batch(reading: OptionReader, settings: SettingsBuilder) -> None:
    """Set sequences and tokens of a micro-batch, and the chunks of a pipeline stage.

    Raises LaunchError if the global batch is no multiple of the local batches.
    """
    values = settings.values
    num_stages, num_gpus = int(values["pipeline_parallel"]), values.get("num_gpus")
    micro_batch, batch = (int(values.get(name) or 0) for name in _BATCHES)
    if num_gpus and micro_batch:
        smallest_batch = (
            micro_batch * int(num_gpus) // prod(int(values[split]) for split in MODEL_SPLITS)
        )
        if batch % smallest_batch:
            raise LaunchError(
                f"{reading.position}: global_batch_size {batch} is not a multiple of "
                "local_batch_size "
                f"{micro_batch} x data-parallel ranks = {smallest_batch}: NeMo AutoModel "
                "refuses that."
            )
        if num_stages > 1 and batch > smallest_batch:
            settings.notes.append(
                f"Its pipeline fills and drains {batch // smallest_batch} times a step, "
                "once for each local batch. The prediction has it once a step."
            )
    if num_stages > 1:
        keys = [f"{section}pp_microbatch_size" for section in _PIPELINES]
        values["micro_batch_size"] = number(reading, *keys) or 1
        _set_virtual_pipeline(reading, settings, num_stages)
    length = number(reading, *_LENGTHS)
    settings.set("sequence_length", length)
    if length is None:
        settings.mark_missing("sequence_length")
    if length is None or not number(reading, *_LENGTHS[:3]):
        settings.notes.append(
            UNPACKED.format(option="the assumed length" if length is None else "that")
        )
    set_total_tokens(settings, number(reading, "step_scheduler.max_steps"))


def _set_virtual_pipeline(
    reading: OptionReader, settings: SettingsBuilder, num_stages: int
) -> None:
    """Set the chunks of a pipeline stage; unequal chunks are predicted as equal chunks."""
    schedule, rounding = (
        option_text(reading, *(section + name for section in _PIPELINES)) or ""
        for name in ("pp_schedule", "round_virtual_stages_to_pp_multiple")
    )
    if schedule in ("", "1f1b", "gpipe"):
        return
    layers_per_stage = number(reading, *(f"{section}layers_per_stage" for section in _PIPELINES))
    chunks, model = 2, settings.values.get("model")
    layers = _num_layers(model) if layers_per_stage and model else None
    if layers_per_stage and layers:
        chunks_per_stage = math.ceil(layers / layers_per_stage) / num_stages
        chunks = max(
            math.floor(chunks_per_stage) if rounding == "down" else math.ceil(chunks_per_stage), 1
        )
    settings.values["virtual_pipeline"] = chunks
    if layers and layers % (num_stages * chunks):
        nearest = min(
            (chunks, chunks + 1, max(chunks - 1, 1)),
            key=lambda count: (
                -layers % (num_stages * count) > _MAX_MISSING_LAYERS,
                abs(count - chunks),
            ),
        )
        settings.values["virtual_pipeline"] = nearest
        settings.notes.append(
            f"Its {layers} layers are dealt unevenly to {num_stages * chunks} chunks: "
            f"{num_stages * nearest} equal ones are predicted, with embedding and logits in "
            "the last."
        )


TARGET = make_reader_target(
    "nemo-automodel",
    _merge_config_files,
    _add_unlisted_settings,
)

"""Derive settings from the combined options of the Trainer, DeepSpeed and accelerate."""

from __future__ import annotations

import re
from contextlib import suppress

from planner.base.software_enums import ExpertCompute
from planner.base.training_aliases import (
    ExpertAdapters,
    TrainingObjective,
    is_one_end,
    is_paged,
    names_feed_forward,
    names_shared_experts,
    nearest_adapter_targets,
    parse_optimizer,
)
from planner.errors import SpecError
from planner.launch.option_table import OptionTable
from planner.launch.read.hf_trainer.derive_parallelism import (
    derive_batch,
    derive_buckets,
    derive_evaluation,
    derive_parallelism,
    derive_sharding,
    distributed_type_of,
    uses_fsdp,
)
from planner.launch.read.hf_trainer.option_sources import (
    OBJECTIVE_OPTIONS,
    TrainerOptions,
    derive_objective,
    generation_options,
    parse_positive_int,
    rollout_length,
)
from planner.launch.read.parsed_launch import LaunchSettings, SettingsBuilder
from planner.question.parse_values import FEWEST_TOKENS
from planner.question.terms import terms_about
from planner.specs.catalogue import Catalogue
from planner.workloads.training.question import UNKNOWN_TOKENS

# LLaMA-Factory's (0.9, hparams/finetuning_args.py) and ms-swift's (3.x, arguments/tuner_args.py).
_TOWER_OPTIONS = ("--freeze_vision_tower", "--freeze_vit")
_FREEZE_OPTIONS = ("--freeze_multi_modal_projector", "--freeze_language_model", "--freeze_aligner",
           "--freeze_llm")  # fmt: skip
_IMAGE_MARKERS = ("--image_max_pixels", "--video_max_pixels", "--max_pixels", *_FREEZE_OPTIONS)
IMAGE_OPTIONS = (*_TOWER_OPTIONS, *_FREEZE_OPTIONS)


def derive_images(options: TrainerOptions, settings: SettingsBuilder) -> None:
    """Set whether the vision tower is frozen; the default is frozen if image options exist."""
    option = next((name for name in _TOWER_OPTIONS if name in options.texts), None)
    if option is not None:
        settings.values["freeze_vision_tower"] = options.is_on(option)
    elif any(name in options.texts for name in _IMAGE_MARKERS):
        reason = "no freeze_vision_tower: LLaMA-Factory and ms-swift freeze it"
        settings.assume("freeze_vision_tower", True, reason)
    is_adapted = settings.values.get("adapter", "none") != "none"
    if is_adapted and settings.values.get("freeze_vision_tower") is False:
        settings.values["freeze_vision_tower"] = True
        settings.notes.append(ADAPTED_TOWER)


ADAPTED_TOWER = "Adapters of the vision tower are not predicted: planner assumes it frozen."


def derive_kernels(options: TrainerOptions, settings: SettingsBuilder) -> None:
    """Set recomputation, attention kernel and other kernel choices."""
    inside = options.of("script", "sharded_recompute") or options.of("accelerate", "fsdp_recompute")
    if options.has_deepspeed and any(name.startswith("fsdp_config.") for name in options.texts):
        settings.notes.append("With DeepSpeed the keys of fsdp_config have no effect.")
        inside = None
    recompute = options.of("script", "recompute")
    if inside == "true":
        recompute = "full"
    default = options.default("trl", "--gradient_checkpointing")
    if recompute is None and options.is_supervised and default is not None:
        settings.assume("recompute", "full", default.note)
    elif recompute is None:
        settings.assume("recompute", "none", "no --gradient_checkpointing")
    else:
        settings.values["recompute"] = recompute
    flash = options.script.get("flash_attention")
    settings.values["flash_attention"] = "true" if flash is None else flash.value
    for name in terms_about("kernel_choice"):
        if (text := options.of("script", name)) is not None:
            settings.values[name] = text
    loss = options.default("trl", "--loss_type")
    if _uses_default_loss(options, settings) and loss is not None:
        settings.assume("loss_kernel", loss.word, loss.note)


def _uses_default_loss(options: TrainerOptions, settings: SettingsBuilder) -> bool:
    """Whether the program is TRL's SFTTrainer, with no loss kernel of its own."""
    is_sft = settings.values.get("training_objective", "sft") == "sft"
    has_kernels = "loss_kernel" in settings.values or options.is_on("--use_unsloth")
    return options.is_supervised and is_sft and not has_kernels


def derive_precision(options: TrainerOptions, settings: SettingsBuilder) -> None:
    """Set the precision of products, from DeepSpeed's file, the script or accelerate's file."""
    if options.is_on("--fp8"):  # of axolotl and LLaMA-Factory
        settings.values["precision"] = "fp8"
        return
    precision = options.of("deepspeed", "precision") if options.has_deepspeed else None
    precision = precision or options.of("script", "precision")
    is_off = all(options.texts.get(f"{name}.enabled") == "false" for name in ("bf16", "fp16"))
    if precision is None and is_off and not options.has_script:
        precision = "fp32"
    is_chat = (
        "zero_optimization.stage" in options.texts and options.texts.get("--deepspeed") == "true"
    )
    if not precision and is_chat:
        precision = options.texts.get("--dtype") or "fp16"  # DeepSpeed-Chat has one option of it
    launcher_precision = options.of("accelerate", "precision_type")
    if precision in (None, "fp32") and launcher_precision not in (None, "no"):
        precision = launcher_precision
    default = options.default("trl", "--bf16")
    if precision is None and options.is_supervised and default is not None:
        precision = "bf16"
        settings.defaults["precision"] = default.note
    elif precision is None and options.has_script and options.starts_elsewhere:
        reason = "no --bf16 or --fp16, and accelerate's file, which may set it, not found"
        settings.assume("precision", "bf16", f"{reason}: bf16 is taken")
        return
    elif precision is None and options.is_hidden("--deepspeed", "--deepspeed_config"):
        reason = "the text does not name DeepSpeed's file, which may say it"
        settings.assume("precision", "bf16", f"{reason}: bf16 is taken")
        return
    elif precision is None and options.has_script and not options.is_hidden("--bf16", "--fp16"):
        precision = "fp32"
    if precision == "fp32" and options.is_on("--tf32"):
        precision = "tf32"
    if precision in ("fp32", "tf32"):
        settings.notes.append(
            f"It computes in {precision}, as neither --bf16 nor --fp16 is set; "
            "--set precision=bf16 shows what that would change."
        )
    if precision is not None:
        settings.values["precision"] = precision


def derive_framework(options: TrainerOptions, settings: SettingsBuilder) -> None:
    """Set the framework whose profile is nearest to the program and its sharding."""
    is_adapted = settings.values["adapter"] != "none"
    if is_adapted:
        name = "HF Trainer FSDP" if uses_fsdp(options) else "HF Trainer"
        if options.is_on("--use_unsloth"):
            name = "Unsloth"
        elif options.of("script", "fused_kernels") == "true" and not uses_fsdp(options):
            name = "HF Trainer Triton"
    elif options.has_deepspeed or distributed_type_of(options) == "DEEPSPEED":
        name = "DeepSpeed"
    elif _is_compiled_by_launcher(options):
        name = "FSDP compiled"
    elif options.of("script", "weights_type") == "bfloat16":
        name = "HF Trainer bf16"
    else:
        name = "HF Trainer FSDP"
    settings.values["framework"] = name
    if options.of("script", "torch_compile") == "true" or (
        _is_compiled_by_launcher(options) and name != "FSDP compiled"
    ):
        settings.values["torch_compile"] = "true"


def _is_compiled_by_launcher(options: TrainerOptions) -> bool:
    """Whether accelerate's file compiles the model."""
    return (options.of("accelerate", "compiled") or "no").lower() != "no"


UNPACKED = (
    "Without packing, sequences are shorter than {option}: steps are faster and smaller than "
    "predicted, and have fewer tokens."
)
_EPOCHS = 3
_SPLIT_PART = re.compile(r"\[:(\d+)\]$")
_PEFT_RANK = 8
_LORA_FLAGS = ("--use_lora", "--lora", "--lora_enable", "--use_peft_lora", "--enable_lora")
_QLORA_FLAGS = (
    *("--q_lora", "--qlora", "--use_qlora"),
    *("--load_in_4bit", "--use_4bit_quantization", "--use_4bit"),
)
_8_BIT_FLAGS = ("--load_in_8bit", "--use_8bit_quantization")
_OFF_TEXTS = ("false", "auto", "null", "none", "no", "NO")
_BIT_OPTIONS = ("--bits", "--quantization_bit", "--quant_bit")
_MODEL_OPTIONS = ("--model_name_or_path", "--model_name", "--base_model", "--model",
           "--config_name",
           "--model_id", "--model_path", "--pretrained_model_name_or_path")  # fmt: skip
# Names of checkpoints with weights in few bits.
_FEW_BITS = re.compile(r"(?i)(?<![a-z0-9])(gptq|awq|hqq|aqlm|(?:bnb-)?4bit|int4|nf4)(?![a-z0-9])")
# Of these each expert's matrix is a module with its packed weights.
_HAS_MODULES = re.compile(r"(?i)gptq|awq|hqq|aqlm|int4")

_SAMPLE_CAPS = ("--max_samples", "--max_train_samples")
_SAMPLE_COUNT = re.compile(r"#(\d{1,12})$")
_FURTHER_USED_OPTIONS = (
    "--per_device_eval_batch_size",
    "--eval_strategy",
    "--evaluation_strategy",
    *(
        *_MODEL_OPTIONS,
        *_LORA_FLAGS,
        *_QLORA_FLAGS,
        *OBJECTIVE_OPTIONS,
        *IMAGE_OPTIONS,
        "--tf32",
        "--fp8",
    ),
    *("--use_dora", "--ray_num_workers", "--device_groups.nproc_per_node"),
    *("--lora_target_parameters", "--expert_parallel_size", "--ep_size", "--task_type"),
    *(
        "--deepspeed",
        "--fsdp",
        "--fsdp_config",
        *_BIT_OPTIONS,
        "--num_train_epochs",
        *_SAMPLE_CAPS,
        "--dataset",
    ),
    *("--dataset_train_split", "--use_unsloth", "--accelerate_config", "--config_file"),
    "--device_map",
    "--deepspeed_config_file",
)


def derive_settings(options: TrainerOptions, name: str = "") -> LaunchSettings:
    """Derive the settings of a script and its files; ``name`` is the file in messages.

    Raises LaunchError if batch sizes or GPUs contradict each other.
    Raises SpecError if what it trains is not predicted.
    """
    settings = SettingsBuilder()
    model = next(
        (options.texts[option] for option in _MODEL_OPTIONS if options.texts.get(option)), None
    )
    if model:
        settings.values["model"] = model
    else:
        settings.mark_missing("model")
    derive_objective(options, settings, name)
    _derive_adapter(options, settings)
    derive_images(options, settings)
    derive_parallelism(options, settings)
    derive_batch(options, settings)
    derive_evaluation(options, settings)
    _derive_length(options, settings)
    derive_sharding(options, settings)
    derive_buckets(options, settings)
    derive_kernels(options, settings)
    derive_precision(options, settings)
    derive_framework(options, settings)
    _derive_optimizer(options, settings, name)
    _add_notes(options, settings)
    used_names = {
        option
        for source in (options.script, options.deepspeed, options.accelerate)
        for meaning in source.values()
        for option in meaning.options
    }
    used_names |= {name.removeprefix("--") for name in _FURTHER_USED_OPTIONS}
    # An option that is switched off, or left to another file, counts as used.
    table_options = (
        OptionTable.load(name).options for name in ("transformers", "deepspeed", "accelerate")
    )
    switched_off = {
        name.removeprefix("--") for name, text in options.texts.items() if text in _OFF_TEXTS
    }
    used_names |= switched_off & frozenset().union(*table_options)
    used = frozenset(options.spelled[name] for name in used_names if name in options.spelled)
    objective = settings.values.get("training_objective")
    on_rollouts = objective is not None and TrainingObjective(objective).needs_rollouts
    return settings.build(
        used_options=used,
        ignored_options=generation_options(options) if on_rollouts else frozenset(),
    )


def _derive_adapter(options: TrainerOptions, settings: SettingsBuilder) -> None:
    """Set LoRA or QLoRA, rank, matrices and precision of the adapter from a script's options."""
    adapter = options.of("script", "adapter") or "none"
    four_bits = options.is_on(*_QLORA_FLAGS) or "4" in map(options.texts.get, _BIT_OPTIONS)
    is_factory = options.texts.get("--finetuning_type") == "lora"
    if adapter == "none" and (options.is_on(*_LORA_FLAGS) or is_factory):
        adapter = "lora"
    if adapter == "none" and not options.is_supervised:
        rank = options.number("script", "lora_rank")
        adapter = "lora" if rank else "none"
    stored_match = _FEW_BITS.search(str(settings.values.get("model", "")))
    if stored_match and adapter == "lora":
        four_bits = True
        settings.notes.append(
            f"The weights are stored in 4 bits, as {stored_match[1]} in its name says."
        )
        with suppress(SpecError):
            model = Catalogue(None).load_model(str(settings.values["model"]))
            if model.num_experts and _HAS_MODULES.fullmatch(stored_match[1]):
                settings.values["expert_compute"] = ExpertCompute.LOOP.word
    if four_bits and (adapter != "none" or not options.is_supervised):
        adapter = "qlora"
    eight_bits = options.is_on(*_8_BIT_FLAGS) or "8" in map(options.texts.get, _BIT_OPTIONS)
    if eight_bits and adapter == "lora":
        adapter = "qlora"
        settings.values["quantization_bits"] = 8
    elif eight_bits and adapter == "none":
        settings.notes.append("Weights in 8 bits are frozen: all trained weights have 16 bits.")
    # Transformers leaves out modules of multi-token prediction.
    settings.values |= {"adapter": adapter, "mtp_num_layers": 0}
    if adapter == "none":
        return
    if options.is_on("--use_dora"):
        settings.notes.append(
            "DoRA is predicted as LoRA, without the norms of W + BA in each forward pass and its "
            "magnitudes: steps take longer."
        )
    if saved_modules := options.of("script", "saved_modules"):
        settings.values["modules_to_save"] = "embeddings"
        if is_one_end(saved_modules):
            settings.notes.append(
                f"{saved_modules} alone is not predicted: embedding and logits are counted."
            )
    double_quantization = options.of("script", "double_quantization")
    is_4_bit = adapter == "qlora" and not eight_bits
    if is_4_bit and double_quantization == "false":
        settings.values["double_quantization"] = False
    elif is_4_bit and double_quantization is None and options.is_supervised:
        reason = "no --use_bnb_nested_quant: TRL leaves the scales in 32 bits"
        settings.assume("double_quantization", False, reason)
    adapters = options.default("trl", "--adapter_dtype")
    if adapter == "qlora" and options.is_supervised and adapters is not None:
        # Adam's moments are as wide as the adapters.
        for name in ("main_params_precision", "optimizer_state_precision"):
            settings.assume(name, adapters.word, adapters.note)
    rank = options.number("script", "lora_rank")
    if rank is None:
        default = options.default("trl", "--lora_r") if options.is_supervised else None
        rank = int(default.word) if default is not None else _PEFT_RANK
        settings.assume("lora_rank", rank, f"no rank is given: {rank} is the library's")
    else:
        settings.values["lora_rank"] = rank
    modules = options.of("script", "lora_modules")
    if modules is None:
        reason = "no matrices are named: peft takes queries and values of most models"
        settings.assume("lora_targets", "query_value", reason)
    else:
        settings.values["lora_targets"] = str(
            nearest_adapter_targets(modules.replace(",", " ").split())
        )
        if names_feed_forward(modules):
            settings.values["expert_adapters"] = str(ExpertAdapters.EACH)
        elif names_shared_experts(modules):
            settings.values["expert_adapters"] = str(ExpertAdapters.NONE)


def _derive_length(options: TrainerOptions, settings: SettingsBuilder) -> None:
    """Set the tokens per sequence and, if steps and batch are known, of the full run."""
    objective = settings.values.get("training_objective")
    length = options.number("script", "trl_length") or options.number("script", "block_length")
    if objective and TrainingObjective(objective).needs_rollouts:
        rollout_length(options, settings)
    elif length is not None:
        settings.values["sequence_length"] = length
        if options.is_supervised and options.of("script", "packing") != "true":
            settings.notes.append(UNPACKED.format(option="--max_length"))
    elif options.is_supervised and not options.is_hidden("--max_length"):
        if (default := options.default("trl", "--max_length")) is not None:
            settings.assume("sequence_length", int(default.word), default.note)
    else:
        settings.mark_missing("sequence_length")
    steps, batch = (
        options.number("script", "training_steps"),
        settings.values.get("global_batch_size"),
    )
    length = settings.values.get("sequence_length")
    if steps and batch and length:
        sequences_per_sample = TrainingObjective(objective).sequences_per_sample if objective else 1
        settings.values["total_tokens"] = max(
            steps * batch * length * sequences_per_sample, FEWEST_TOKENS
        )
    else:
        _derive_samples(options, settings)


def _derive_samples(options: TrainerOptions, settings: SettingsBuilder) -> None:
    """Set samples and epochs as far as the file determines them, else default total tokens.

    LLaMA-Factory's ``max_samples`` bounds each data set (0.9, data/loader.py takes
    ``min(max_samples, len(dataset))``), ``max_train_samples`` of Transformers' examples all of
    them. ms-swift draws the number after ``#`` of a data set (swift/llm/dataset/loader.py).
    """
    epochs = options.texts.get("--num_train_epochs")
    split_match = _SPLIT_PART.search(options.texts.get("--dataset_train_split") or "")
    datasets = re.split(r"[,\s]+", options.texts.get("--dataset") or "")
    sample_counts = [_SAMPLE_COUNT.search(name) for name in datasets]
    num_samples = parse_positive_int(split_match[1] if split_match else None)
    if all(sample_counts):
        num_samples = sum(int(number[1]) for number in sample_counts if number)
        datasets = datasets[:1]
    cap_option = next(
        (name for name in _SAMPLE_CAPS if parse_positive_int(options.texts.get(name))), ""
    )
    if num_samples is None and cap_option:
        num_samples = parse_positive_int(options.texts[cap_option])
    with suppress(ValueError):
        if float(epochs or 0) > 0:
            settings.values["epochs"] = float(epochs or 0)
    if "epochs" not in settings.values and num_samples is not None:
        settings.assume("epochs", _EPOCHS, f"no num_train_epochs: {_EPOCHS} are the Trainer's")
    if num_samples is not None:
        settings.values["num_samples"] = num_samples * (
            len(datasets) if cap_option == _SAMPLE_CAPS[0] else 1
        )
        if cap_option and not all(sample_counts) and split_match is None:
            cap_note = (
                f"{cap_option.strip('-')} is the most that is taken: time and cost are upper limits"
            )
            settings.defaults["num_samples"] = f"{cap_note}, --samples gives the number"
    elif not options.has_script or (
        settings.values.get("training_objective") == TrainingObjective.PRETRAIN
    ):
        # Fine-tuning does not repeat the tokens of pretraining.
        reason = "the file does not set its samples: time and cost are for a billion tokens"
        settings.assume("total_tokens", UNKNOWN_TOKENS, reason)


_OTHER_STATES = re.compile("galore|apollo|lomo|badam|adam_mini")


def _derive_optimizer(options: TrainerOptions, settings: SettingsBuilder, file_name: str) -> None:
    """Set the optimizer that the options name, if any; raise SpecError for unsupported states."""
    name = options.of("script", "optimizer_name")
    if name is None:
        return
    if parse_optimizer(name) is None and _OTHER_STATES.search(name):
        raise SpecError(
            f"{file_name}: the optimizer {name} keeps neither the states nor the gradients "
            "of Adam, and is not predicted: name another one to have the rest predicted."
        )
    settings.set_optimizer(name)
    if not is_paged(name):
        return
    framework = Catalogue(None).load_framework(str(settings.values["framework"])).spec
    if not framework.paged_optimizer or settings.values.get("offload", "none") != "none":
        settings.notes.append(f"The states of {name} are predicted without paging.")
        del settings.values["paged_optimizer"]


_TASK_HEADS = ("seq_cls", "embedding", "reranker")


def _add_notes(options: TrainerOptions, settings: SettingsBuilder) -> None:
    """Add notes on ignored keys, small task heads and values of "auto" without a script."""
    if options.unknown:
        names = ", ".join(options.unknown[:5])
        settings.notes.append(f"DeepSpeed ignores unknown keys: {names} has no effect.")
    if (task := options.texts.get("--task_type")) in _TASK_HEADS:
        settings.notes.append(
            f"task_type {task} has a small head. The prediction includes logits of the vocabulary, "
            "so that the run takes less time and memory."
        )
    if "auto" in options.texts.values() and not options.has_script:
        names = ", ".join(name for name, text in options.texts.items() if text == "auto")
        settings.notes.append(
            f'"auto" is set by the script\'s arguments, which are missing: {names}.'
        )

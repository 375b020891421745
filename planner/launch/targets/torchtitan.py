"""Torchtitan: a configuration function with dotted overrides."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from itertools import count

from planner.base.enums import AttentionKind
from planner.base.records import record
from planner.documents.shell.edits import ParsedOption
from planner.errors import LaunchError, PlannerError
from planner.estimators.training.sharding import chunk_split
from planner.launch.model_shape import config_json, find_model_of_name, without_mtp_modules
from planner.launch.option_table import (
    OptionAliasTable,
    OptionTexts,
    ParameterNote,
    Quantities,
    shipped_rows,
)
from planner.launch.read.hf_trainer.write_script import require_even_copies
from planner.launch.read.parsed_launch import (
    LaunchSettings,
    OptionReader,
    ParsedCommand,
    SettingsBuilder,
    parse_int,
    total_gpus,
)
from planner.launch.target import (
    CommandWords,
    LaunchDraft,
    LaunchJob,
    LaunchOutputFile,
    LaunchTarget,
    ShellVariable,
    Value,
    fill_template,
    option_texts,
)
from planner.launch.targets.megatron_lm import fp8_recipe_of
from planner.launch.write.benchmark import training_draft
from planner.specs.catalogue import load_model
from planner.specs.model import ModelSpec

MODULE = "planned_config"
_BASES = {
    "llama3": "llama3_8b",
    "qwen3": "qwen3_1_7b",
    "deepseek_v3": "deepseek_v3_671b",
    "gpt_oss": "gpt_oss_20b",
}
SUFFIXES = {"fp8": "_float8", "fp4": "_nvfp4"}


@record(kw_only=True)
class ShippedModel:
    """A model that torchtitan 0.3.0 ships; ``config`` is its bf16 function, empty without one."""

    module: str
    flavor: str
    model: str
    config: str = ""


@record(kw_only=True)
class ConfigFunction:
    """Defaults of a shipped configuration function."""

    local_batch: int
    sequence_length: int
    recompute: str
    tensor_parallel: int = 1
    expert_parallel: int = 1
    schedule: str = "1F1B"
    precision: str = "bf16"


_ROWS = shipped_rows("models/torchtitan.csv")
SHIPPED = tuple(
    ShippedModel(**{name: row[name] for name in ("module", "flavor", "model", "config")})
    for row in _ROWS
)
FUNCTIONS = {
    row["function"]: ConfigFunction(
        **{
            name: int(row[name]) if row[name].isdecimal() else row[name]  # type: ignore[arg-type]
            for name in ConfigFunction.__dataclass_fields__
        }
    )
    for row in _ROWS
    if row["function"]
}
"""Configuration functions by name."""


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


def custom_config_module(job: LaunchJob, stage_modules: list[list[str]] | None) -> str:
    """Return the Python text of a configuration module; ``stage_modules``: modules per stage.

    Raises LaunchError if torchtitan has no model whose sizes could be those of the plan.
    """
    shipped_model = shipped_model_of(job.model)
    module = "llama3" if shipped_model is None else shipped_model.module
    converters = _converters(job)
    converter_lines = "".join(f"\n        {converter}," for converter in converters)
    values: dict[str, Value] = {
        "module": module,
        "base": _BASES[module],
        "function": config_function_name(job),
        "flavor": "" if shipped_model is None else shipped_model.flavor,
        "sizes": _sizes_of(job.model) if shipped_model is None else (),
        "quantizers": ", ".join(sorted({converter.partition(".")[0] for converter in converters})),
        "converters": f"[{converter_lines}\n    ]" if converters else "[]",
        "stages": [f"{modules!r}," for modules in stage_modules or ()],
    }
    return fill_template("torchtitan_config.txt", values, blank_lines=2)


def _converters(job: LaunchJob) -> list[str]:
    """Return the converters that quantize matrix products to 8 or 4 bits; may be empty."""
    has_experts = bool(job.model.num_experts)
    compile_argument = "model_compile_enabled=True"
    if job["precision"] == "fp4":
        return [f'NVFP4LinearConverter.Config(fqns=["layers"], {compile_argument})']
    recipe = fp8_recipe_of(job, "tensorwise")
    if recipe is None:
        return []
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


# Keys of earlier versions with their current names.
_RENAMED_KEYS = OptionAliasTable.load("torchtitan").of("is")
_SUBCOMMAND = "activation-checkpoint:"
# torchtitan's script, the variables that it passes on, and its default number of processes.
_SCRIPT = "run_train.sh"
_VARIABLES = {"MODULE": "module", "CONFIG": "config", "CONFIG_FILE": "job.config_file"}
_DEFAULT_PROCESSES = 8
# pytorch/torchtitan 00d1c0e, torchtitan/models/llama3/config_registry.py: 8B and 70B are eager.
_COMPILED_CONFIGS = ("llama3_405b",)
_KEY = re.compile(r"[a-z_0-9]+(\.[a-z_0-9]+)+")
_RECOMPUTE_MODES = ("none", "selective", "full")
_PRECISION_SUFFIXES = (("float8", "fp8"), ("fp8", "fp8"), ("mxfp8", "fp8"), ("nvfp4", "fp4"))


# Defaults of TrainingConfig and ParallelismConfig.
_DEFAULT_FUNCTION = ConfigFunction(local_batch=8, sequence_length=2048, recompute="selective")


@dataclass(kw_only=True)
class _Options:
    """Overrides by dotted names without hyphens; they go before keys of a TOML file."""

    options: dict[str, ParsedOption] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    is_older: bool = False
    is_script: bool = False
    subcommand: str | None = None

    def text(self, name: str) -> str | None:
        """Return an option's words as one text and mark it used; None if missing or computed."""
        option = self.options.get(name)
        if option is None or None in option.texts:
            return None
        self.used.add(option.option)
        return " ".join(text for text in option.texts if text is not None) or "true"

    def number(self, name: str) -> int | None:
        """Return an option as an integer of any sign; None if it is missing or not an integer."""
        try:
            return int((self.text(name) or "").replace("_", ""))
        except ValueError:
            return None


def read_settings(reading: OptionReader) -> LaunchSettings:
    """Read the settings of a command, a TOML file or a configuration function of torchtitan.

    Raises LaunchError if the file's split of the model does not divide its GPUs.
    """
    options = _collect_options(reading.command)
    if options.is_script and not {*_VARIABLES.values()} & {*options.options}:
        raise LaunchError(
            f"{reading.position}: {_SCRIPT} is read as torchtitan's. It needs its model in "
            "CONFIG=... before the command: set that, or read the configuration file itself."
        )
    # The name of a function or a TOML file, or a flavor in one.
    name = options.text("config") or options.text("job.config_file") or ""
    name = name.rpartition("/")[2].removesuffix(".toml")
    # A file with a model of its own has torchtitan's defaults, not those of a shipped function.
    custom_name = options.text("function") or options.text("model.flavor")
    is_self_contained = not options.text("config") and custom_name is not None
    if is_self_contained:
        name = _model_flavor(options)
    function = _DEFAULT_FUNCTION if is_self_contained else FUNCTIONS.get(name, _DEFAULT_FUNCTION)
    settings = option_texts(reading, "torchtitan")
    values, notes = settings.values, settings.notes
    values["framework"] = "torchtitan"
    changes_model = options.text("model.changed") is not None
    is_flavored = options.text("model.flavor") is not None
    model = (
        None
        if changes_model
        else _read_model(options, _model_flavor(options) if is_flavored else name)
    )
    settings.set("model", model)
    _set_sizes(options, name, function, settings)
    _set_states(options, function, settings)
    num_gpus = _set_gpus(reading, options, settings)
    settings.missing += ["model"] * (model is None) + ["num_gpus"] * (num_gpus is None)
    _set_batch(options, function, num_gpus, settings)
    values["precision"] = _read_precision(options, options.text("function") or name, function)
    _set_model_parts(reading, options, settings)
    if model is None and _is_looped(options, function):
        settings.mark_missing("virtual_pipeline")
    elif model is not None and values["pipeline_parallel"] > 1:
        values["virtual_pipeline"] = _stages_per_rank(
            options, values["pipeline_parallel"], function, model
        )
    if options.is_older:
        notes.append("torchtitan 0.3.0 reads no TOML: it takes --module, --config and overrides.")
    compile_text = options.text("compile.enable")
    is_compiled = not is_self_contained and name in _COMPILED_CONFIGS
    if compile_text is not None:
        is_compiled = compile_text.lower() != "false" and "model" in (
            options.text("compile.components") or "model"
        )
    values["torch_compile"] = "auto" if is_compiled else "false"
    if compile_text is None and not is_compiled:
        settings.defaults["torch_compile"] = f"{name or 'torchtitan'} enables no --compile.enable"
    steps = options.number("training.steps")
    if steps and "global_batch_size" in values:
        values["total_tokens"] = steps * values["global_batch_size"] * values["sequence_length"]
    return settings.build(used_options=frozenset(options.used))


def _model_flavor(options: _Options) -> str:
    """Return the model as function names spell it, such as ``llama3_8b``; "" if not set."""
    flavor = (options.text("model.flavor") or "").lower()
    if module := options.text("model.name"):
        return f"{module}_{flavor}".lower()
    # The name of a function begins with the folder of its model.
    function_name = (options.text("config") or options.text("function") or "").lower()
    if not flavor:
        return function_name
    module = next(
        (
            shipped_model.module
            for shipped_model in SHIPPED
            if function_name.startswith(f"{shipped_model.module}_")
        ),
        "",
    )
    return f"{module}_{flavor}" if module else function_name


def _set_sizes(
    options: _Options, name: str, function: ConfigFunction, settings: SettingsBuilder
) -> None:
    """Set tensor, context, pipeline and expert parallelism, and the tokens of a sequence."""
    for term, key, default in (
        ("tensor_parallel", "parallelism.tensor_parallel_degree", function.tensor_parallel),
        ("context_parallel", "parallelism.context_parallel_degree", 1),
        ("pipeline_parallel", "parallelism.pipeline_parallel_degree", 1),
        ("expert_parallel", "parallelism.expert_parallel_degree", function.expert_parallel),
        ("sequence_length", "training.seq_len", function.sequence_length),
    ):
        settings.set(term, options.number(key))
        settings.assume(term, default, f"{default} is that of {name or 'torchtitan'}")


def _collect_options(command: ParsedCommand) -> _Options:
    """Collect options of a command and its files under current key names, and its subcommand."""
    options = _Options()
    for document in (command, *command.files.values()):
        parsed_options = {
            **{unparsed.option: unparsed for unparsed in document.unknown},
            **document.options,
        }
        words = [
            *parsed_options,
            *(str(unparsed.texts[0]) for unparsed in document.positional if unparsed.texts),
        ]
        for word in words:
            if word.startswith(_SUBCOMMAND):
                options.subcommand = word.removeprefix(_SUBCOMMAND)
                options.used.add(word)
        for option, parsed in parsed_options.items():
            is_command = option.startswith("-")
            name = option.lstrip("-").replace("-", "_") if is_command else option
            if _KEY.fullmatch(option):
                options.is_older = True
            options.options.setdefault(_RENAMED_KEYS.get(name, name), parsed)
    program = next((word_option.single or "" for word_option in command.positional), "")
    options.is_script = program.rpartition("/")[2] == _SCRIPT
    if options.is_script:
        for variable, name in _VARIABLES.items():
            if variable in command.environment:
                options.options.setdefault(name, command.environment[variable])
    return options


def _read_model(options: _Options, name: str) -> str | None:
    """Return planner's name of the model in a configuration's or folder's name; None if unknown."""
    base_name = name
    for suffix, _ in _PRECISION_SUFFIXES:
        base_name = base_name.removesuffix(f"_{suffix}")
    for shipped_model in SHIPPED:
        flavor = shipped_model.flavor.lower().replace("-", "_").replace(".", "_")
        if (
            base_name.lower().replace("-", "_").replace(".", "_")
            == f"{shipped_model.module}_{flavor}"
        ):
            return shipped_model.model
    model = find_model_of_name(base_name) if base_name else None
    assets = options.text("hf_assets_path")
    return model or (find_model_of_name(assets.rstrip("/").rpartition("/")[2]) if assets else None)


def _set_states(options: _Options, function: ConfigFunction, settings: SettingsBuilder) -> None:
    """Set recomputation, ZeRO stage, sequence parallelism and offload from the options."""
    values = settings.values
    reshard = options.text("parallelism.fsdp_reshard_after_forward") or "default"
    keeps_weights = reshard == "never" or (reshard == "default" and values["pipeline_parallel"] > 1)
    is_tensor_split = values["tensor_parallel"] > 1
    is_switched_off = options.text("parallelism.no_enable_sequence_parallel") is not None
    is_switched_off = (
        is_switched_off
        or (options.text("parallelism.enable_sequence_parallel") or "").lower() == "false"
    )
    offloads = (options.text("training.enable_cpu_offload") or "false").lower() == "true"
    recompute = options.subcommand or options.text("activation_checkpoint.mode")
    settings.set("recompute", recompute if recompute in _RECOMPUTE_MODES else None)
    default = function.recompute
    settings.assume("recompute", default, f"{default} is that of the configuration")
    values["zero_stage"] = 2 if keeps_weights else 3
    values["sequence_parallel"] = is_tensor_split and not is_switched_off
    values["offload"] = "optimizer_weights" if offloads else "none"
    values["flash_attention"] = True


def _set_gpus(reading: OptionReader, options: _Options, settings: SettingsBuilder) -> int | None:
    """Set the GPUs, ZeRO stage and data-parallel replicas; return the GPUs, None if unknown.

    Raises LaunchError if shards and replicas do not fit the GPUs.
    """
    values = settings.values
    copies = options.number("parallelism.data_parallel_replicate_degree") or 1
    shards = options.number("parallelism.data_parallel_shard_degree") or -1
    gpus_per_shard = (
        values["tensor_parallel"] * values["context_parallel"] * values["pipeline_parallel"]
    )
    num_gpus = total_gpus(reading.command.resources)
    if num_gpus is None and options.is_script:
        num_gpus = parse_int(reading.command.environment.get("NGPU"))
    if num_gpus is None and shards > 0:
        num_gpus = copies * shards * gpus_per_shard
    if num_gpus is None and options.is_script:
        num_gpus = _DEFAULT_PROCESSES
        settings.defaults["num_gpus"] = f"{num_gpus} are the processes that {_SCRIPT} starts"
    if num_gpus is not None and (
        num_gpus % (gpus_per_shard * copies) or 0 < shards != num_gpus // (gpus_per_shard * copies)
    ):
        split = (
            f"{copies} copies x {'the rest' if shards < 0 else shards} shards x {gpus_per_shard}"
        )
        raise LaunchError(
            f"{reading.position}: {num_gpus} GPUs are not {split} GPUs of a "
            "shard (tensor x context x pipeline): change one of them."
        )
    sharding = shards if shards > 0 or num_gpus is None else num_gpus // (gpus_per_shard * copies)
    if sharding == 1 and values["context_parallel"] == 1:
        # Only copies: nothing is sharded.
        values |= {"zero_stage": 0, "data_parallel_replicas": 1}
    else:
        values["data_parallel_replicas"] = copies
    if num_gpus is not None:
        values["num_gpus"] = num_gpus
    return num_gpus


def _set_batch(
    options: _Options, function: ConfigFunction, num_gpus: int | None, settings: SettingsBuilder
) -> None:
    """Set the sequences of a micro-batch and of a step; the latter needs the number of GPUs."""
    values = settings.values
    num_stages, length = values["pipeline_parallel"], values["sequence_length"]
    local_batch = options.number("training.local_batch_size")
    micro_batch = options.number("parallelism.pipeline_parallel_microbatch_size") or 1
    global_batch = options.number("training.global_batch_size")
    if tokens := options.number("training.num_tokens_per_microbatch_per_dp_rank"):
        micro_batch = max(tokens // length, 1)
        local_batch = micro_batch * (
            (options.number("parallelism.num_pp_microbatches") or 1) if num_stages > 1 else 1
        )
    if (tokens := options.number("training.num_tokens_per_train_step") or 0) > 0:
        global_batch = max(tokens // length, 1)
    if local_batch is None:
        local_batch = function.local_batch
        settings.defaults["micro_batch_size"] = (
            f"local batch {local_batch} is that of the configuration"
        )
    values["micro_batch_size"] = micro_batch if num_stages > 1 else local_batch
    if global_batch is not None and global_batch > 0:
        values["global_batch_size"] = global_batch
    elif num_gpus is not None:
        gpus_per_copy = values["tensor_parallel"] * values["context_parallel"] * num_stages
        values["global_batch_size"] = local_batch * num_gpus // gpus_per_copy


def _read_precision(options: _Options, name: str, function: ConfigFunction) -> str:
    """Return the number format: of a switch, a converter, the configuration's suffix or default."""
    precision = function.precision
    for suffix, format_name in _PRECISION_SUFFIXES:
        if name.endswith(f"_{suffix}"):
            precision = format_name
    converters = (options.text("model.converters") or "").lower()
    for word, format_name in _PRECISION_SUFFIXES:
        if word in converters:
            precision = format_name
    if (options.text("float8.enable_float8_linear") or "").lower() == "true":
        precision = "fp8"
    return precision


def _set_model_parts(reading: OptionReader, options: _Options, settings: SettingsBuilder) -> None:
    """Set the number of multi-token prediction layers and the optimizer.

    Raises LaunchError if the model has LoRA adapters.
    """
    if "lora" in (options.text("model.converters") or "").lower():
        raise LaunchError(
            f"{reading.position}: torchtitan's LoRA converter is not predicted, only "
            "configurations "
            "that train all weights."
        )
    settings.set("mtp_num_layers", options.number("model.mtp"))
    if name := options.text("optimizer.name"):
        settings.set_optimizer(name)


def _is_looped(options: _Options, function: ConfigFunction) -> bool:
    pp = options.number("parallelism.pipeline_parallel_degree") or 1
    schedule = options.text("parallelism.pipeline_parallel_schedule") or function.schedule
    return pp > 1 and "1F1B" != schedule != "GPipe"


def _stages_per_rank(options: _Options, stages: int, function: ConfigFunction, model: str) -> int:
    """Return how many pipeline stages each rank runs; 1 if the model is unknown."""
    layers_per_stage = options.number("parallelism.pipeline_parallel_layers_per_stage")
    if layers_per_stage is None:
        return 2 if _is_looped(options, function) else 1
    try:
        layers = load_model(model).num_hidden_layers
    except PlannerError:
        return 1
    for end in ("first", "last"):
        weight = options.number(f"parallelism.pipeline_parallel_{end}_stage_less_layers")
        layers += 1 if weight is None else weight
    return max(math.ceil(layers / layers_per_stage) // stages, 1)


_ASSETS = ShellVariable(
    name="HF_ASSETS_PATH", meaning="folder of the tokenizer, and of weights if any"
)
_DATASET = ShellVariable(name="DATASET", meaning="a data set that torchtitan knows", default="c4")
_OUTPUT = ShellVariable(
    name="OUTPUT_DIR", meaning="where checkpoints and logs go", default="outputs", is_output=True
)


def _quantities(job: LaunchJob) -> Quantities:
    """Return the values of TorchTitan's options for a planned job, by parameter name."""
    dp, copies = job.data_parallel, _num_copies(job)
    pp, micro_batch = int(job["pipeline_parallel"]), int(job["micro_batch_size"])
    precision = job["precision"]
    schedule = "Interleaved1F1B" if job["virtual_pipeline"] > 1 else "1F1B"
    shipped_model = shipped_model_of(job.model)
    has_custom_config = _needs_custom_config(job)
    return {
        "module": MODULE if has_custom_config or shipped_model is None else shipped_model.module,
        "config": config_function_name(job)
        if has_custom_config or shipped_model is None
        else shipped_model.config,
        # A split that no option expresses is in the plan's own function.
        **({"schedule": schedule, **(_split_quantities(job) or {})} if pp > 1 else {}),
        "replicas": copies,
        "shards": dp // copies,
        "local_batch": micro_batch
        * (job["global_batch_size"] // (micro_batch * dp) if pp > 1 else 1),
        "micro_in_pipeline": micro_batch if pp > 1 else None,
        "training_steps": job.training_steps,
        "precision_in_16": True if precision not in ("bf16", "tf32", "fp32") else None,
        "sequence_parallel": job["sequence_parallel"] if job["tensor_parallel"] > 1 else None,
        "torch_compile": "false" if job["torch_compile"] == "false" else "true",
        "no_graphs": True if pp > 1 or job["expert_parallel"] > 1 else None,
    }


def _needs_custom_config(job: LaunchJob) -> bool:
    """Return whether a job needs a generated configuration, as no override expresses it."""
    shipped_model = shipped_model_of(job.model)
    is_expressible = (
        job["precision"] not in ("fp8", "fp4")
        and shipped_model is not None
        and shipped_model.config
    )
    return not is_expressible or _stage_modules(job) is not None


def _stage_sizes(job: LaunchJob) -> list[int]:
    """Layers of each of torchtitan's stages: the chunks of the plan."""
    pp, vp = int(job["pipeline_parallel"]), int(job["virtual_pipeline"])
    return chunk_split(without_mtp_modules(job.model), pp, vp)


def _split_quantities(job: LaunchJob) -> dict[str, int] | None:
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


def _stage_modules(job: LaunchJob) -> list[list[str]] | None:
    """Return the module names of each pipeline stage; None if options express the split."""
    if job["pipeline_parallel"] == 1 or _split_quantities(job) is not None:
        return None
    layers = count()
    modules = [[f"layers.{next(layers)}" for _ in range(size)] for size in _stage_sizes(job)]
    modules[0].insert(0, "tok_embeddings")
    modules[-1] += ["norm", "lm_head"]
    return modules


def _draft(job: LaunchJob, settings: OptionTexts) -> LaunchDraft:
    """Build the TorchTitan command of a job and, if needed, a module with its configuration."""
    require_even_copies(job)
    _require_expert_split(job)
    module = custom_config_module(job, _stage_modules(job)) if _needs_custom_config(job) else ""
    files = (
        LaunchOutputFile(name=f"{MODULE}.py", text=module, meaning="the model's configuration"),
    )
    options = [option for option in settings.options if not option.option.startswith(_SUBCOMMAND)]
    subcommands = [option for option in settings.options if option.option.startswith(_SUBCOMMAND)]
    arguments = (
        CommandWords(words=("-m", "torchtitan.train")),
        *map(CommandWords.of, options),
        CommandWords(words=("--hf_assets_path", _ASSETS)),
        CommandWords(words=("--dataloader.dataset", _DATASET)),
        CommandWords(words=("--dump_folder", _OUTPUT)),
        CommandWords(words=("--metrics.log_freq", "1")),
        CommandWords(words=("--checkpoint.enable",)),
        # A subcommand of the parser: nothing may follow it.
        *map(CommandWords.of, subcommands),
    )
    note = "ranks that split sequences always share the shards of the weights"
    sharding_note = ParameterNote(parameter="zero_stage", value="0", note=note)
    is_shared = not job["zero_stage"] and job["context_parallel"] > 1
    return training_draft(
        job,
        "torchtitan",
        arguments,
        num_last=len(subcommands),
        files=files if module else (),
        unexpressed=(sharding_note,) if is_shared else (),
    )


def _require_expert_split(job: LaunchJob) -> None:
    """Raise LaunchError if expert parallelism does not divide the GPUs of a copy's stage."""
    shards = job.data_parallel // _num_copies(job)
    ranks = shards * job["context_parallel"] * job["tensor_parallel"]
    if ranks % job["expert_parallel"]:
        raise LaunchError(
            f"torchtitan splits experts over the {ranks} GPUs of a copy and a stage "
            f"(shards {shards} x context x tensor), not over {job['expert_parallel']}: plan with "
            "a ZeRO stage, fewer copies or less expert parallelism, or choose another target."
        )


def _num_copies(job: LaunchJob) -> int:
    return int(job["data_parallel_replicas"]) if job["zero_stage"] else job.data_parallel


TARGET = LaunchTarget.of("torchtitan", quantities=_quantities, draft=_draft, answers=read_settings)

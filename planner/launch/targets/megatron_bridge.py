"""Megatron-Bridge (and NeMo): an entry point and its dotted overrides; adapters too.

Source: NVIDIA-NeMo/Megatron-Bridge at 067f987, ``scripts/performance`` (``argument_parser.py``,
``utils/utils.py``) and the functions of ``src/megatron/bridge/perf_recipes``, whose values
``models/megatron-bridge.csv`` has by their names.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from planner.documents.shell.edits import Changes, ParsedOption, implied_option
from planner.errors import LaunchError
from planner.launch.model_shape import find_model_of_name
from planner.launch.option_table import (
    FLAG,
    MutableQuantities,
    OptionAliasTable,
    OptionTable,
    OptionTexts,
    ParserOptions,
    Quantities,
)
from planner.launch.read.expression_rows import apply_read_rows, parse_parameters
from planner.launch.read.hf_trainer.option_sources import OptionSources, apply_program_defaults
from planner.launch.read.import_launch import require_counts
from planner.launch.read.parsed_launch import (
    LaunchSettings,
    OptionReader,
    ParsedCommand,
    SettingsBuilder,
    total_gpus,
    with_unknown_options,
)
from planner.launch.read.serving_reader import find_model_by_name
from planner.launch.target import (
    CommandWords,
    LaunchDraft,
    LaunchJob,
    LaunchOutputFile,
    LaunchTarget,
    Value,
    fill_template,
    models_of,
    overrides,
    user_arguments,
)
from planner.launch.targets.megatron_arguments import (
    TABLE,
    read_megatron_arguments,
    without_experts,
)
from planner.launch.targets.megatron_bridge_recipes import Recipe, choose_recipe, model_of_recipe
from planner.launch.targets.megatron_shape import (
    is_hybrid,
    shape_quantities,
    split_quantities,
)
from planner.launch.write.benchmark import training_draft
from planner.question.request import Request

PROGRAM = "bridge_train.py"
SHAPE = "shape"
"""Argument of the program in place of a model on Hugging Face: the overrides set the shape."""
_PRIMUS_TRAINERS = ("modules.pre_trainer.", "modules.post_trainer.")
_ARGUMENTS = ("megatron-lm-0.19.2",)
_SECTIONS = (
    *("model.config.", "model.", "train.", "ddp.", "optimizer.", "dataset.", "checkpoint."),
    *("scheduler.", "trainer.strategy.", "trainer.", "data.", "mixed_precision.", "tokenizer."),
    *("system.precision.", "system.logging.", "system.checkpoint.", "system."),  # of FlagScale
)
_NULL_TEXTS = ("", "null", "none", "~", "???")
# Primus takes a variable of the environment, else what follows the colon.
_ENVIRONMENT = re.compile(r"\$\{\w+:-?([^{}]*)\}")
_DIALECT = OptionAliasTable.load("megatron-bridge")
_SHORT, _RENAMED = _DIALECT.of("short"), _DIALECT.of("is")
_STAGES, _TENSORS = "pipeline_model_parallel_size", "tensor_model_parallel_size"
_FSDP, _SHARDING = "use_megatron_fsdp", "ddp.data_parallel_sharding_strategy"
_LAYOUT, _BATCH = "pipeline_model_parallel_layout", "train.global_batch_size"


def read_settings(reading: OptionReader) -> LaunchSettings:
    """Read the settings of a command or document of Megatron-Bridge, NeMo or Primus.

    Raises LaunchError if its options contradict each other, or the number of GPUs.
    """
    table = OptionTable.load("megatron-lm")
    command = _without_idle_offload(reading.command)
    reading = OptionReader.of(command, OptionTable.load("megatron-bridge"))
    options = {
        option.option: _with_defaults(option)
        for option in (*command.options.values(), *command.unknown)
    }
    words = command.words
    apply_program_defaults(OptionSources(script=options, words=words), _DIALECT)
    if "finetune" in words and (factory := options.get("--factory")) is not None:
        # Recipes for fine-tuning are not in the table.
        options["--factory"] = factory.with_value(f"{factory.single}_finetune")
    job_gpus = total_gpus(command.resources)
    has_gpus = job_gpus is not None or bool({*options} & {*_NODES, *_GPUS_OF_NODE, *_GPUS})
    recipe = choose_recipe(options, command.resources.gpu, has_gpus=has_gpus)
    merged = options if recipe is None else _merge_recipe(options, recipe, job_gpus)
    arguments = _translate_keys(merged, {row.option for row in table.rows if row.text == FLAG})
    if f"--{_LAYOUT.replace('_', '-')}" in arguments:
        arguments.pop("--num-virtual-stages-per-pipeline-rank", None)  # a layout sets it

    def first(names: Collection[str], other: ParsedOption | None) -> ParsedOption | None:
        return next((merged[name] for name in names if name in merged), other)

    resources = replace(
        command.resources,
        num_nodes=first(_NODES, command.resources.num_nodes),
        gpus_per_node=first(_GPUS_OF_NODE, command.resources.gpus_per_node),
        num_gpus=command.resources.num_gpus or first(_GPUS, None),
    )
    inner = OptionReader.of(replace(command, options=arguments, resources=resources), table)
    require_counts(inner)
    framework = "NeMo" if any(name.startswith("trainer.") for name in merged) else "Megatron-Bridge"
    megatron = read_megatron_arguments(inner, framework)
    settings = SettingsBuilder.of(megatron)
    settings.values |= _read_bridge_rows(reading, inner)
    model, note = _read_model(merged, words)
    if recipe is not None:
        model = model or recipe.model
        note = f"Its recipe {recipe.name} sets what the file does not."
        settings.set("gpu", recipe.gpu)
    model_spec = find_model_by_name(model)
    if model_spec is not None and not model_spec.num_experts:
        settings.values = without_experts(settings.values)
    shape = megatron.shape if model is None else None
    # Recipes of models with experts set it: most do not split an expert.
    if note and settings.defaults.pop("expert_tensor_parallel", ""):
        del settings.values["expert_tensor_parallel"]
    settings.notes = [
        text
        for text in (*settings.notes, *([note] if note else []))
        if "--bf16" not in text and "vocabulary" not in text
    ]
    settings.defaults = {
        name: reason for name, reason in settings.defaults.items() if name in settings.values
    }
    settings.missing = [name for name in settings.missing if name != "model"]
    if shape is None:
        settings.require("model", model)
    quantities: MutableQuantities = {
        "is_named": shape is None,
        "shards": any(
            ("distributed_optimizer" in name or "fsdp" in name)
            and (_text(option) or "").lower() != "false"
            for name, option in merged.items()
        ),
    }
    of_file = replace(reading, command=replace(command, options=merged))
    apply_read_rows(of_file, OptionTable.load("megatron-bridge"), settings, quantities)
    return settings.build(
        shape=shape,
        used_options=frozenset(name for name, option in merged.items() if _is_used(name, option)),
        unread=_megatron_keys(merged),
        required=_unknown_recipe_terms(merged, recipe, arguments, table),
    )


_NODES = ("trainer.num_nodes", "--num_nodes", "--nodes")
_GPUS_OF_NODE = ("trainer.devices", "--gpus_per_node", "--gpus-per-node")
_GPUS = ("--num_gpus", "-ng")
_RECIPE_OPTIONS = (
    "--tensor-model-parallel-size",
    "--pipeline-model-parallel-size",
    "--micro-batch-size",
    "--global-batch-size",
)


def _unknown_recipe_terms(
    options: Mapping[str, ParsedOption],
    recipe: Recipe | None,
    translated: Collection[str],
    table: OptionTable,
) -> dict[str, str]:
    """Return settings that only an unknown recipe sets, each with the reason it is required."""
    name = _text(options.get("--recipe")) or _text(options.get("--factory"))
    if recipe is not None or name is None:
        return {}
    reason = f"the recipe {name} is not known, and the file does not set what it decides"
    unset_options = [option for option in _RECIPE_OPTIONS if option not in translated]
    return {row.parameter: reason for row in table.rows if row.option in unset_options}


def _merge_recipe(
    options: Mapping[str, ParsedOption], recipe: Recipe, num_gpus: int | None
) -> dict[str, ParsedOption]:
    """Merge options of the file with a recipe's options; the file's options take precedence.

    A batch grows with the GPUs. Sequences are split where tensors are. A layout of the recipe
    counts for the recipe's number of stages only.
    """
    set_keys = {_strip_section(name) for name in options}
    texts = {
        _strip_section(name): option.single or ""
        for name, option in {**recipe.options, **options}.items()
    }
    dropped = {*set_keys}
    if set_keys & {_STAGES, f"virtual_{_STAGES}"}:
        dropped.add(_LAYOUT)
    if _STAGES in set_keys and texts[_STAGES] == "1":
        dropped.add(f"virtual_{_STAGES}")  # one stage has no chunks
    merged = {
        name: option
        for name, option in recipe.options.items()
        if _strip_section(name) not in dropped
    }
    implied: dict[str, str] = {}
    batch, job_gpus = merged.get(_BATCH), recipe.num_gpus or num_gpus
    if batch is not None and job_gpus and job_gpus != recipe.default_num_gpus:
        sequences = int(batch.single or 1) * job_gpus // recipe.default_num_gpus
        implied[_BATCH] = str(max(sequences, 1))
    if texts.get(_FSDP, "").lower() == "true":
        implied[_SHARDING] = "optim_grads_params"
    if "sequence_parallel" not in set_keys and texts.get(_TENSORS, "1") != "1":
        implied["model.sequence_parallel"] = "true"
    merged |= {name: implied_option(name, text) for name, text in implied.items()}
    return {**merged, **options}


def _read_bridge_rows(reading: OptionReader, inner: OptionReader) -> dict[str, str]:
    """Return parameters that Megatron-Bridge's table reads from more options than Megatron-LM's."""
    translated_parameters = {
        row.parameter for row in OptionTable.load("megatron-bridge").rows if row.value
    }

    def count_options(name: str) -> int:
        return len(inner.meanings[name].options) if name in inner.meanings else 0

    return {
        name: value
        for name, value in parse_parameters(reading.meanings).items()
        if name in translated_parameters
        and len(reading.meanings[name].options) > count_options(name)
    }


def _without_idle_offload(command: ParsedCommand) -> ParsedCommand:
    """Return the file without the keys of ``cpu_offloading`` if it is off: it uses none of them."""
    options = with_unknown_options(command).options
    switches = [
        _text(option) for name, option in options.items() if _strip_section(name) == _OFFLOADING
    ]
    if [*map(str.lower, filter(None, switches))] != ["false"]:
        return command
    idle = {name for name in options if _strip_section(name).startswith(f"{_OFFLOADING}_")}
    return replace(
        command,
        options={name: option for name, option in command.options.items() if name not in idle},
        unknown=tuple(option for option in command.unknown if option.option not in idle),
    )


_OFFLOADING = "cpu_offloading"


def _with_defaults(option: ParsedOption) -> ParsedOption:
    """Return the option with defaults in place of variables: ``${PRIMUS_TP:1}`` becomes 1."""
    texts = tuple(text and _ENVIRONMENT.sub(r"\1", text) for text in option.texts)
    pairs = zip(option.texts, texts, option.spans, strict=True) if option.spans else ()
    spans = tuple(span if before == after else None for before, after, span in pairs)
    return replace(option, texts=texts, spans=spans or option.spans)


def _megatron_keys(options: Mapping[str, ParsedOption]) -> frozenset[str]:
    """Return the keys of Primus or FlagScale in the file that Megatron-LM has arguments for."""
    is_flagscale = any(name.startswith("system.") for name in options)
    keys = [name for name in options if is_flagscale or name.startswith(_PRIMUS_TRAINERS)]
    if not keys:
        return frozenset()
    accepted = ParserOptions.of(_ARGUMENTS, OptionTable.load("megatron-lm"))
    return frozenset(
        name for name in keys if accepted.find(_dashed(_strip_section(name))) is not None
    )


def _is_used(name: str, option: ParsedOption) -> bool:
    """Return whether the prediction depends on the option ``name``: its argument is read."""
    key = _strip_section(name)
    arguments = {
        _RENAMED.get(key, _dashed(key)),
        *(each for each, _ in _arguments_of_key(key, _text(option), set())),
    }
    is_count = name in (*_NODES, *_GPUS_OF_NODE, *_GPUS)
    return is_count or not arguments.isdisjoint(TABLE.options | TABLE.used)


def _translate_keys(
    options: Mapping[str, ParsedOption], flags: set[str]
) -> dict[str, ParsedOption]:
    """Translate keys of the file to arguments of Megatron-LM, with their texts."""
    arguments: dict[str, ParsedOption] = {}
    for name, parsed in options.items():
        for option, texts in _arguments_of_key(_strip_section(name), _text(parsed), flags):
            spans = parsed.spans if len(parsed.spans) == len(texts) else (None,) * len(texts)
            arguments[option] = replace(parsed, option=option, texts=texts, spans=spans)
    fp8_text = next(
        (_text(parsed) for name, parsed in options.items() if _strip_section(name) == "fp8"), None
    )
    if (fp8_text or "").lower() in ("false", *_NULL_TEXTS[1:]):
        arguments.pop("--fp8-format", None)  # recipes set the format even where FP8 is off
    return arguments


def _strip_section(name: str) -> str:
    """Return a key without its sections and under its current name."""
    key = name
    for trainer in _PRIMUS_TRAINERS:
        key = key.removeprefix(f"{trainer}overrides.")
    key = _SHORT.get(key, key.removeprefix("--"))
    for section in _SECTIONS:
        if key.startswith(section):
            key = key.removeprefix(section)
            break
    return _SHORT.get(key, key)


_Texts = tuple[str | None, ...]


def _arguments_of_key(
    key: str, text: str | None, flags: Collection[str]
) -> Iterator[tuple[str, _Texts]]:
    """Yield the arguments of Megatron-LM, with texts, for a key with ``text``."""
    if text is None:
        yield _RENAMED.get(key, _dashed(key)), (None,)
        return
    value = text.strip().strip("\"'")
    if value.lower() in _NULL_TEXTS:
        return
    arguments: Iterable[tuple[str, str | None]] = [(_dashed(key), None)]
    if key in _DIALECT.options:
        lower = key in _DIALECT.names("word")
        arguments = _DIALECT.translate(key, value.lower() if lower else value)
    for option, word in arguments:
        argument = value if word is None else word
        if option not in flags:
            yield option, (argument,)
        elif argument.lower() in ("", "true", "1"):
            yield option, ()


def _dashed(key: str) -> str:
    return "--" + key.replace("_", "-")


def _text(option: ParsedOption | None) -> str | None:
    """The value of a key; items of a list are joined by blanks."""
    return None if option is None else option.joined


def _read_model(
    options: Mapping[str, ParsedOption], words: Sequence[str]
) -> tuple[str | None, str]:
    """Return the model that a program or recipe names, None if unknown, and a note."""
    for program, argument in pairwise(words):
        if program.endswith(PROGRAM) and argument != SHAPE:
            return argument, ""
    models = (f"{trainer}model" for trainer in _PRIMUS_TRAINERS)
    names = ("--recipe", "--model", "--factory", "-m", *models)
    texts = (_text(options.get(name)) for name in names)
    name = (model_of_recipe(options) or next(filter(None, texts), "")).partition("(")[0]
    if not name:
        return None, ""
    model = find_model_of_name(name)
    if model is None:
        return None, f"planner does not know the model {name}."
    is_recipe = bool({"--recipe", "--factory"} & {*options})
    note = "the recipe sets what the file does not, and planner does not know the recipe"
    return model, f"{name}: {note}." if is_recipe else ""


_NO_CHECKPOINT = "checkpoint.save=null"
_UNCOUNTED_ENDS = {"embedding_in_split": False, "loss_in_split": False}


def _quantities(job: LaunchJob) -> Quantities:
    """Return the values of Megatron-Bridge's overrides that no row computes, by parameter name."""
    split = split_quantities(job)
    ends = {} if split.get("pipeline_layout") is not None else _UNCOUNTED_ENDS
    if job.hub_name is not None:
        return {**ends, **split}
    shape = shape_quantities(job.model, int(job["tensor_parallel"]))
    dense = int(shape["num_dense_layers"] or 0)
    kinds = ["0"] * dense + ["1"] * (int(shape["num_hidden_layers"] or 0) - dense)
    # Of each layer whether it has experts; None if all layers are alike.
    shape["moe_layer_list"] = f"[{','.join(kinds)}]" if shape["moe_layer_freq"] else None
    return {**ends, **shape, **split}


def _narrow_request(request: Request) -> Request:
    """Limit the request to one pipeline stage if a model has layers of several kinds."""
    if not any(map(is_hybrid, models_of(request))):
        return request
    return replace(request, settings={"pipeline_parallel": 1, **request.settings})


def _draft(job: LaunchJob, settings: OptionTexts) -> LaunchDraft:
    """Build the Megatron-Bridge command and program of a job; refuse hybrid models in stages."""
    if is_hybrid(job.model) and job["pipeline_parallel"] > 1:
        raise LaunchError(
            f"{job.model.name}: in Megatron-Bridge only a recipe can split layers of several kinds "
            "into stages: plan pipeline_parallel 1, or choose megatron-lm."
        )
    model, is_adapted = job.hub_name or SHAPE, job["adapter"] not in (None, "none")
    values: dict[str, Value] = {
        "version": TARGET.version,
        "shape": SHAPE,
        "is_adapted": is_adapted,
        "function": "finetune" if is_adapted else "pretrain",
        "precision": "fp16" if job["precision"] == "fp16" else "bf16",
    }
    program = fill_template("bridge_train.txt", values)
    return training_draft(
        job,
        "megatron-bridge",
        (
            CommandWords(words=(PROGRAM, model)),
            *overrides(settings.options),
            *user_arguments("megatron-bridge", job),
        ),
        extra=(_NO_CHECKPOINT,),
        files=(
            LaunchOutputFile(name=PROGRAM, text=program, meaning="the settings after overrides"),
        ),
    )


def _split_changes(command: ParsedCommand, changes: Changes) -> tuple[Changes, Changes]:
    """Return changes under the keys of the file; a new key of Primus is a Megatron-LM argument.

    Raises LaunchError if Primus has no argument for one of them.
    """
    keys_in_file = {_strip_section(name): name for name in command.options}
    trainer = next(
        (t for t in _PRIMUS_TRAINERS if any(name.startswith(t) for name in command.options)), ""
    )
    accepted = ParserOptions.of(_ARGUMENTS, OptionTable.load("megatron-lm"))
    file_changes: dict[str, tuple[str, ...] | None] = {}
    for name, texts in changes.items():
        key = _strip_section(name)
        argument = accepted.find(_RENAMED.get(key, _dashed(key)))
        if trainer and key not in keys_in_file:
            if argument is None:
                raise LaunchError(f"Primus has no argument for {name}.")
            words = argument.name.removeprefix("--").replace("-", "_")
            file_changes[f"{trainer}overrides.{words}"] = texts
        else:
            file_changes[keys_in_file.get(key, name)] = texts
    return file_changes, {}


TARGET = LaunchTarget.of(
    "megatron-bridge",
    quantities=_quantities,
    draft=_draft,
    answers=read_settings,
    honoured=_split_changes,
    narrowed=_narrow_request,
)

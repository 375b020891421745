"""Torchtitan: a configuration function with dotted overrides."""

from __future__ import annotations

import re
from dataclasses import replace

from planner.documents.shell.edits import ParsedOption
from planner.launch.model_shape import find_model_of_name
from planner.launch.option_table import (
    MutableQuantities,
    OptionAliasTable,
    OptionTexts,
    Quantities,
    matches_option,
)
from planner.launch.read.expression_rows import apply_read_rows
from planner.launch.read.parsed_launch import (
    LaunchSettings,
    OptionReader,
    ParsedCommand,
    parse_int,
)
from planner.launch.target import (
    CommandWords,
    LaunchDraft,
    LaunchJob,
    LaunchOutputFile,
    LaunchTarget,
    option_texts,
    user_arguments,
)
from planner.launch.targets.training_reader import published_layers
from planner.launch.write.benchmark import training_draft
from planner.launch.write.torchtitan_config import (
    FUNCTIONS,
    MODULE,
    SHIPPED,
    config_function_name,
    custom_config_module,
    needs_custom_config,
    shipped_model_of,
    split_quantities,
)

# Keys of earlier versions with their current names.
_RENAMED_KEYS = OptionAliasTable.load("torchtitan").of("is")
_SUBCOMMAND = "activation-checkpoint:"
# torchtitan's script, and the variables that it passes on.
_SCRIPT = "run_train.sh"
_VARIABLES = {"MODULE": "module", "CONFIG": "config", "CONFIG_FILE": "job.config_file"}
_KEY = re.compile(r"[a-z_0-9]+(\.[a-z_0-9]+)+")
_PRECISION_SUFFIX = re.compile(r"_(float8|mxfp8|fp8|nvfp4)$")


def _read_settings(reading: OptionReader) -> LaunchSettings:
    """Read the settings of a command, a TOML file or a configuration function of torchtitan.

    Raises LaunchError if the file's split of the model does not divide its GPUs.
    """
    command, quantities = _merge_files(reading.command)
    inner = replace(reading, command=command)
    config = inner.text("config") or inner.text("job.config_file") or ""
    # A file with a model of its own has torchtitan's defaults, not those of a shipped function.
    has_custom_model = not inner.text("config") and any(
        map(inner.has, ("function", "model.flavor"))
    )
    name = config.rpartition("/")[2].removesuffix(".toml")
    flavored = _flavored_name(inner)
    name = flavored if has_custom_model else name
    model = _find_model(inner, flavored if inner.has("model.flavor") else name)
    model = None if inner.has("model.changed") else model
    function = {} if has_custom_model else FUNCTIONS.get(name, {})
    settings = option_texts(reading, "torchtitan")
    for row in TARGET.table.expressions:
        settings.values.pop(row.parameter, None)
    if optimizer := inner.text("optimizer.name"):
        settings.set_optimizer(optimizer)
    apply_read_rows(
        inner,
        TARGET.table,
        settings,
        {
            **{f"shipped_{key}": value for key, value in function.items()},
            **quantities,
            "configuration": name or "torchtitan",
            "has_custom_model": has_custom_model,
            "named_model": model,
            "published_layers": published_layers(model),
        },
    )
    used = {
        option.option
        for name, option in command.options.items()
        if matches_option(name, TARGET.table.used) and None not in option.texts
    }
    return settings.build(used_options=frozenset(used))


def _merge_files(command: ParsedCommand) -> tuple[ParsedCommand, MutableQuantities]:
    """Return a command with the options of its files, by current key names, and quantities.

    The quantities are the subcommand, whether the script starts it and its processes.
    """
    options: dict[str, ParsedOption] = {}
    quantities: MutableQuantities = {}
    for document in (command, *command.files.values()):
        parsed_options = {option.option: option for option in document.unknown}
        parsed_options |= document.options
        for word in (*parsed_options, *document.words):
            if word.startswith(_SUBCOMMAND):
                quantities["subcommand"] = word.removeprefix(_SUBCOMMAND)
        for option, parsed in parsed_options.items():
            name = option.lstrip("-").replace("-", "_") if option.startswith("-") else option
            quantities["has_old_keys"] = bool(
                quantities.get("has_old_keys") or _KEY.fullmatch(option)
            )
            options.setdefault(_RENAMED_KEYS.get(name, name), parsed)
    program = next(iter(command.words), "")
    if program.rpartition("/")[2] == _SCRIPT:
        for variable in _VARIABLES.keys() & command.environment.keys():
            options.setdefault(_VARIABLES[variable], command.environment[variable])
        processes = parse_int(command.environment.get("NGPU"))
        quantities |= {"starts_script": True, "processes": processes}
    return replace(command, options=options, unknown=()), quantities


def _flavored_name(inner: OptionReader) -> str:
    """Return the model as function names spell it, such as ``llama3_8b``; "" if not set."""
    flavor = (inner.text("model.flavor") or "").lower()
    if module := inner.text("model.name"):
        return f"{module}_{flavor}".lower()
    # The name of a function begins with the folder of its model.
    function_name = (inner.text("config") or inner.text("function") or "").lower()
    modules = (model.module for model in SHIPPED if function_name.startswith(f"{model.module}_"))
    module = next(modules, None)
    return f"{module}_{flavor}" if module and flavor else function_name


def _find_model(inner: OptionReader, name: str) -> str | None:
    """Return planner's name of the model in a configuration's or folder's name; None if unknown."""
    base_name = _PRECISION_SUFFIX.sub("", name)
    for model in SHIPPED:
        if _spell(base_name) == _spell(f"{model.module}_{model.flavor}"):
            return model.model
    assets = inner.text("hf_assets_path") or ""
    folders = (base_name, assets.rstrip("/").rpartition("/")[2])
    return next(filter(None, map(find_model_of_name, filter(None, folders))), None)


def _spell(name: str) -> str:
    return name.lower().replace("-", "_").replace(".", "_")


def _quantities(job: LaunchJob) -> Quantities:
    """Return the module and function of a job's configuration, and the split of its layers."""
    shipped_model = shipped_model_of(job.model)
    has_custom_config = shipped_model is None or needs_custom_config(job)
    return {
        "module": MODULE if shipped_model is None or has_custom_config else shipped_model.module,
        "config": config_function_name(job)
        if shipped_model is None or has_custom_config
        else shipped_model.config,
        # A split that no option expresses is in the plan's own function.
        **(split_quantities(job) or {} if job["pipeline_parallel"] > 1 else {}),
    }


def _draft(job: LaunchJob, settings: OptionTexts) -> LaunchDraft:
    """Build the TorchTitan command of a job and, if needed, a module with its configuration."""
    module = custom_config_module(job) if needs_custom_config(job) else ""
    files = (
        LaunchOutputFile(name=f"{MODULE}.py", text=module, meaning="the model's configuration"),
    )
    options = [option for option in settings.options if not option.option.startswith(_SUBCOMMAND)]
    subcommands = [option for option in settings.options if option.option.startswith(_SUBCOMMAND)]
    arguments = (
        CommandWords(words=("-m", "torchtitan.train")),
        *map(CommandWords.of, options),
        *user_arguments("torchtitan", job),
        # A subcommand of the parser: nothing may follow it.
        *map(CommandWords.of, subcommands),
    )
    return training_draft(
        job,
        "torchtitan",
        arguments,
        num_last=len(subcommands),
        files=files if module else (),
    )


TARGET = LaunchTarget.of("torchtitan", quantities=_quantities, draft=_draft, answers=_read_settings)

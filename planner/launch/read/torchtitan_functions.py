"""Configuration functions of torchtitan, each as equivalent overrides.

Source: pytorch/torchtitan at b5bcd76, ``torchtitan/config/configs.py`` and ``README.md``, and
``torchtitan/models/*/config_registry.py``; older ones have ``ModelConvertersContainer`` and
``ActivationCheckpointConfig``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from planner.documents.python_calls import Call, Function, UnknownValue, Value

_SECTIONS = {"TrainingConfig": "training", "ParallelismConfig": "parallelism",
             "CompileConfig": "compile", "ActivationCheckpointConfig": "activation_checkpoint",
             "ActivationCheckpointingConfig": "activation_checkpoint"}  # fmt: skip
_MODES = {"FullAC": "full", "SelectiveAC": "selective", "MemoryBudgetAC": "selective"}
_CHECKPOINTING = "activation_checkpoint"
_MODE = f"{_CHECKPOINTING}.mode"
_REGISTRY, _MODEL, _ASSETS = "model_registry", "model_spec", "hf_assets_path"
_MODULES = "torchtitan.models."


def has_torchtitan_functions(calls: Sequence[Call]) -> bool:
    """True if a program has configuration functions of torchtitan: builds or changes a trainer."""
    return any(
        (call.ends("Config") and {_MODEL, "training"} <= {*call.keywords})
        or call.name.startswith(("torchtitan.models.", "torchtitan_recipes."))
        for call in calls
    )  # fmt: skip


def function_files(module: str) -> tuple[str, ...]:
    """Return possible files of a ``--module``; empty if it is no module name.

    >>> function_files("llama3")
    ('llama3.py', 'llama3/config_registry.py', 'torchtitan/models/llama3/config_registry.py')
    """
    if not all(part.isidentifier() for part in module.split(".")):
        return ()
    path = module.replace(".", "/")
    registry = f"{path}/config_registry.py"
    return f"{path}.py", registry, f"torchtitan/models/{registry}"


def configuration_functions(
    functions: Sequence[Function],
) -> Iterator[tuple[Function, Mapping[str, Value]]]:
    """Yield each function that makes a configuration, with its settings by dotted names.

    If a function changes a shipped configuration, ``config`` is the name of that configuration.
    """
    by_name = {function.name: function for function in functions}
    for function in functions:
        if settings := _settings(function, by_name, ()):
            yield function, settings


def _settings(
    function: Function, functions: Mapping[str, Function], ancestors: tuple[str, ...]
) -> dict[str, Value]:
    """Return the settings that a configuration function makes, by dotted name; else empty.

    A function that changes another in ``functions`` starts from its settings; ``ancestors`` are the
    functions that led here, which are not followed again.
    """
    settings: dict[str, Value] = {}
    builder = next(
        (call for call in function.calls if {_MODEL, "training"} <= {*call.keywords}), None
    )
    base = None if builder else _base_function(function, functions)
    if base is not None and base in functions and base not in ancestors:
        settings = _settings(functions[base], functions, (*ancestors, function.name))
    elif base is not None and base not in functions:
        settings = {"config": base}
    if builder is None and not settings:
        return {}
    if builder is not None:
        settings = {_ASSETS: builder.keywords.get(_ASSETS)}
        if _CHECKPOINTING in builder.keywords:
            settings |= _checkpointing_mode(builder.keywords[_CHECKPOINTING])
    for call in function.calls:
        class_name = call.name.removesuffix(".Config").rpartition(".")[2]
        section = next(
            (name for suffix, name in _SECTIONS.items() if class_name.endswith(suffix)), ""
        )
        if section:
            settings = {
                key: value for key, value in settings.items() if not key.startswith(f"{section}.")
            }
            settings |= {f"{section}.{key}": value for key, value in call.keywords.items()}
        if class_name.endswith(_REGISTRY) and call.positional:
            settings |= _model_settings(call)
        elif "converters" in call.keywords:
            settings["model.converters"] = _converter_names(call.keywords["converters"])
        if "optimizer" in class_name.lower() or class_name.startswith("default_"):
            named, of_class = call.keywords.get("name"), "muon" in class_name.lower()
            default = "muon" if of_class else "adamw"
            settings["optimizer.name"] = named if isinstance(named, str) else default
    for path, value in function.changes.items():
        # A model is registered by its folder, or made or changed here.
        is_registered = isinstance(value, UnknownValue) and _REGISTRY in value.why.partition("(")[0]
        if path.partition(".")[0] == _MODEL and not is_registered:
            settings = {
                key: value for key, value in settings.items() if not key.startswith("model.")
            }
            settings["model.changed"] = True
        elif path == _CHECKPOINTING:
            settings |= _checkpointing_mode(value)
        elif "." in path and not isinstance(value, Call):
            settings[path] = value
    return settings


def _base_function(function: Function, functions: Mapping[str, Function]) -> str | None:
    """Return the name of the function whose configuration ``function`` changes; None if none."""
    for call in function.calls:
        function_name = call.name.rpartition(".")[2]
        if function_name in functions or (
            call.name.startswith(_MODULES) and "_" in function_name and function_name != _REGISTRY
        ):
            return function_name
    return None


def _checkpointing_mode(value: Value) -> dict[str, Value]:
    """Return the mode of activation checkpointing by the class of a value; empty if unknown."""
    if value is None:
        return {_MODE: "none"}
    name = value.name if isinstance(value, Call) else ""
    mode = next((mode for class_name, mode in _MODES.items() if class_name in name), None)
    return {} if mode is None else {_MODE: mode}


def _model_settings(call: Call) -> dict[str, Value]:
    """Return name, flavor, converters and MTP layers of the model that a registry call selects."""
    module = call.name.removeprefix(_MODULES).partition(".")[0]
    is_shipped = call.name.startswith(_MODULES)
    return {
        "model.name": module if is_shipped else None,
        "model.flavor": call.positional[0],
        "model.converters": _converter_names(call.keywords.get("converters")),
        "model.mtp": call.keywords.get("num_mtp_layers"),
    }


def _converter_names(value: Value) -> str | None:
    """Return the names of matrix-product converters, in lower case with blanks; None if none."""
    converters = value if isinstance(value, list) else []
    names = (
        converter.name.removesuffix(".Config")
        for converter in converters
        if isinstance(converter, Call)
    )
    return " ".join(name.rpartition(".")[2].lower() for name in names) or None

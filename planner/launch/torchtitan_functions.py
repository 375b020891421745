"""Torchtitan's functions of configurations, each as the overrides that say the same.

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
_REPEATED = "activation_checkpoint"
_MODE = f"{_REPEATED}.mode"
_REGISTRY, _MODEL, _ASSETS = "model_registry", "model_spec", "hf_assets_path"
_MODULES = "torchtitan.models."


def is_of(calls: Sequence[Call]) -> bool:
    """Whether a program has such functions: it builds a trainer of a model, or changes one."""
    return any(
        (call.ends("Config") and {_MODEL, "training"} <= {*call.keywords})
        or call.name.startswith(("torchtitan.models.", "torchtitan_recipes."))
        for call in calls
    )  # fmt: skip


def places(module: str) -> tuple[str, ...]:
    """Where the functions of a ``--module`` may stand; nowhere of words that are no module.

    >>> places("llama3")
    ('llama3.py', 'llama3/config_registry.py', 'torchtitan/models/llama3/config_registry.py')
    """
    if not all(part.isidentifier() for part in module.split(".")):
        return ()
    path = module.replace(".", "/")
    registry = f"{path}/config_registry.py"
    return f"{path}.py", registry, f"torchtitan/models/{registry}"


def configured(functions: Sequence[Function]) -> Iterator[tuple[Function, Mapping[str, Value]]]:
    """Each function that makes a configuration, with what it sets by dotted names.

    One that changes what a shipped function makes has its name as ``config``.
    """
    by_name = {one.name: one for one in functions}
    for function in functions:
        if settings := _settings(function, by_name, ()):
            yield function, settings


def _settings(
    function: Function, known: Mapping[str, Function], within: tuple[str, ...]
) -> dict[str, Value]:
    settings: dict[str, Value] = {}
    made = next((one for one in function.calls if {_MODEL, "training"} <= {*one.keywords}), None)
    base = None if made else _base(function, known)
    if base is not None and base in known and base not in within:
        settings = _settings(known[base], known, (*within, function.name))
    elif base is not None and base not in known:
        settings = {"config": base}
    if made is None and not settings:
        return {}
    if made is not None:
        settings = {_ASSETS: made.keywords.get(_ASSETS)}
        if _REPEATED in made.keywords:
            settings |= _mode(made.keywords[_REPEATED])
    for call in function.calls:
        last = call.name.removesuffix(".Config").rpartition(".")[2]
        section = next((own for ending, own in _SECTIONS.items() if last.endswith(ending)), "")
        if section:
            settings = {
                key: one for key, one in settings.items() if not key.startswith(f"{section}.")
            }
            settings |= {f"{section}.{key}": value for key, value in call.keywords.items()}
        if last.endswith(_REGISTRY) and call.positional:
            settings |= _model(call)
        elif "converters" in call.keywords:
            settings["model.converters"] = _names(call.keywords["converters"])
        if "optimizer" in last.lower() or last.startswith("default_"):
            settings["optimizer.name"] = "muon" if "muon" in last.lower() else "adamw"
    for path, value in function.changes.items():
        # A model is one that its folder registers, or one that is made or changed here.
        is_registered = isinstance(value, UnknownValue) and _REGISTRY in value.why.partition("(")[0]
        if path.partition(".")[0] == _MODEL and not is_registered:
            settings = {key: one for key, one in settings.items() if not key.startswith("model.")}
            settings["model.changed"] = True
        elif path == _REPEATED:
            settings |= _mode(value)
        elif "." in path and not isinstance(value, Call):
            settings[path] = value
    return settings


def _base(function: Function, known: Mapping[str, Function]) -> str | None:
    """The function whose configuration one changes."""
    for call in function.calls:
        last = call.name.rpartition(".")[2]
        if last in known or (call.name.startswith(_MODULES) and "_" in last and last != _REGISTRY):
            return last
    return None


def _mode(value: Value) -> dict[str, Value]:
    """How layers are repeated: by an object of one of several classes, or none."""
    if value is None:
        return {_MODE: "none"}
    name = value.name if isinstance(value, Call) else ""
    mode = next((mode for kind, mode in _MODES.items() if kind in name), None)
    return {} if mode is None else {_MODE: mode}


def _model(call: Call) -> dict[str, Value]:
    module = call.name.removeprefix(_MODULES).partition(".")[0]
    is_told = call.name.startswith(_MODULES)
    return {
        "model.name": module if is_told else None,
        "model.flavor": call.positional[0],
        "model.converters": _names(call.keywords.get("converters")),
        "model.mtp": call.keywords.get("num_mtp_layers"),
    }


def _names(value: Value) -> str | None:
    """What the converters of matrix products are called."""
    listed = value if isinstance(value, list) else []
    names = (one.name.removesuffix(".Config") for one in listed if isinstance(one, Call))
    return " ".join(name.rpartition(".")[2].lower() for name in names) or None

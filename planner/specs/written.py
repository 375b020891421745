"""A model as the text of its spec file, which reads back as the same model."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from planner.errors import SpecError
from planner.specs.catalogue import load_model
from planner.specs.load import read_spec
from planner.specs.model import ModelSpec
from planner.specs.paths import SpecKind

OWN_FOLDER = Path("hardware_specs")
"""The folder of own specs that is looked in where no other is named."""


def model_text(model: ModelSpec) -> str:
    """The TOML of a model: what differs from what a spec has where a file is silent."""
    return "\n".join(_lines(model, "")).strip() + "\n"


def file_name(name: str) -> str:
    """The name of the file of a model, which requests call it by: small letters, digits, dashes.

    >>> file_name("moonshotai/Kimi-Linear-48B-A3B-Instruct")
    'kimi-linear-48b-a3b-instruct'
    """
    return re.sub(r"[^a-z0-9.]+", "-", name.rpartition("/")[2].lower()).strip("-.")


def add_model(
    kind: SpecKind, source: str, name: str | None, folder: Path | None, replaces: bool
) -> tuple[Path, ModelSpec]:
    """Keep what ``source`` describes: its file, and the model.

    Raises
    ------
    SpecError
        It is no model, cannot be read, or there is a file of its name.
    """
    if kind is not SpecKind.MODELS:
        raise SpecError(
            f"Only models and GPUs can be added, not {kind}: copy the closest file of them."
        )
    known = folder if folder and os.path.isdir(folder) else None
    model = load_model(source, known)
    is_repository = source.count("/") == 1 and not os.path.exists(source)
    aliases = (source,) if is_repository else ()
    called = name or (source if is_repository else model.name)
    model = replace(model, name=name or model.name, aliases=aliases)
    return keep_model(model, called, folder, replaces), model


def keep_model(model: ModelSpec, name: str, folder: Path | None, replaces: bool = False) -> Path:
    """Write the file of a model into a folder of own specs, and return its path.

    Raises
    ------
    SpecError
        The name makes no file's name, there is such a file and it is not to be replaced, or it
        cannot be written.
    """
    path = keep_text(model_text(model), SpecKind.MODELS, name, folder, replaces)
    read_spec(ModelSpec, path)
    return path


def keep_text(
    text: str, kind: SpecKind, name: str, folder: Path | None, replaces: bool = False
) -> Path:
    """Write the file of a spec into a folder of own specs, and return its path.

    Raises
    ------
    SpecError
        As `keep_model` does.
    """
    stem = file_name(name)
    if not stem:
        raise SpecError(f"{name!r} has no letters or digits for the name of a file: give --name.")
    path = (folder or OWN_FOLDER) / kind / f"{stem}.toml"
    if os.path.exists(path) and not replaces:
        raise SpecError(f"{path}: there is such a file. Give --name NAME, or --replace.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SpecError(f"{path}: cannot be written: {error.strerror or error}.") from error
    return path


def _lines(spec: Any, prefix: str) -> Iterator[str]:
    given = []
    for one in fields(spec):
        value = getattr(spec, one.name)
        default = one.default if one.default_factory is MISSING else one.default_factory()
        if value is not None and value != default:
            given.append((one.name, value))
    tables = [(name, value) for name, value in given if _holds_tables(value)]
    for name, value in given:
        if not _holds_tables(value):
            yield f"{name} = {_value(value)}"
    for name, value in tables:
        path = f"{prefix}{name}"
        several = isinstance(value, tuple)
        for each in value if several else (value,):
            yield ""
            yield f"[[{path}]]" if several else f"[{path}]"
            yield from _lines(each, f"{path}.")


def _holds_tables(value: Any) -> bool:
    return is_dataclass(value) or (
        isinstance(value, tuple) and bool(value) and is_dataclass(value[0])
    )


def _value(value: Any) -> str:
    """A word, number or list of them as TOML, which for these is JSON."""
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=True)

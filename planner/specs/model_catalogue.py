"""Models by name: built in, on Hugging Face, or a file of the user's."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from planner.specs.cache import kept
from planner.specs.checkpoint_names import format_of
from planner.specs.load import read_spec
from planner.specs.model import ModelSpec
from planner.specs.paths import SpecKind, aliased, find

_SIXTEEN_BIT = "w16a16"


def load_model(name: str, folder: Path | None = None) -> ModelSpec:
    """A model by name, alias, ORG/NAME of Hugging Face, or path (``.toml``, ``config.json``).

    A built-in model by the name of a checkpoint has the weights that this name tells of.

    Raises
    ------
    SpecError
        It is unknown, or its file has faults.
    MissingDependencyError
        It has to be downloaded, and huggingface-hub is not installed.
    """
    if name.endswith(".toml"):
        return _from_toml(find(SpecKind.MODELS, name, folder))
    if name.endswith(".json") or "/" in name or os.path.isfile(os.path.join(name, "config.json")):
        return _of_hugging_face(name, folder)
    return _from_toml(find(SpecKind.MODELS, name, folder))


def _of_hugging_face(name: str, folder: Path | None) -> ModelSpec:
    # Twenty modules that a model of the catalogue does not need.
    from planner.specs.hugging_face import find_config, is_repository, read_config

    if name.endswith(".json"):
        return read_config(Path(name))
    if os.path.isfile(os.path.join(name, "config.json")):
        return read_config(Path(name) / "config.json")
    if is_repository(name):
        return _built_in(name, folder) or read_config(find_config(name), name)
    return _from_toml(find(SpecKind.MODELS, name, folder))


def _built_in(repository: str, folder: Path | None) -> ModelSpec | None:
    """The built-in model that has ``repository`` among its aliases, if there is one."""
    path = aliased(SpecKind.MODELS, repository, folder)
    return None if path is None else _as_published(_from_toml(path), repository)


def _as_published(model: ModelSpec, repository: str) -> ModelSpec:
    """The model with the types of a checkpoint's weights, as far as its name tells them."""
    word = format_of(repository)
    return model if word is None else in_format(model, word)


def in_format(model: ModelSpec, word: str) -> ModelSpec:
    """The model with weights of a type: its experts alone where its own weights are so."""
    if word == _SIXTEEN_BIT:
        return replace(model, quantization=None, expert_quantization=None)
    experts_alone = model.quantization is None and model.expert_quantization is not None
    dense = None if experts_alone else word
    return replace(
        model, quantization=dense, expert_quantization=word if model.num_experts else None
    )


def stored_types(model: ModelSpec) -> tuple[str, str]:
    """The types of a model's dense matrices and of its experts, as words of the table of terms."""
    dense = model.quantization or _SIXTEEN_BIT
    return dense, model.expert_quantization or dense


@kept
def _from_toml(path: Path) -> ModelSpec:
    return read_spec(ModelSpec, path)

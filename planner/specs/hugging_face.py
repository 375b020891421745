"""Models from Hugging Face: their ``config.json``, never their code or weights."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from planner.base.reading import json_of
from planner.errors import MissingDependencyError, SpecError, did_you_mean
from planner.specs.hugging_face_families import FAMILIES
from planner.specs.hugging_face_quantization import published_types
from planner.specs.hugging_face_reader import ConfigReader
from planner.specs.hugging_face_unmodelled import UNMODELLED
from planner.specs.load import check_spec, read_text
from planner.specs.model import ModelSpec

_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def is_repository(name: str) -> bool:
    """Whether ``name`` has the form ORG/NAME."""
    return _REPOSITORY.fullmatch(name) is not None


def read_config(path: Path, name: str | None = None) -> ModelSpec:
    """The model that a ``config.json`` describes.

    Raises
    ------
    SpecError
        With one line per fault: file, key and what is wrong. Model types that are not
        supported are refused, naming what of them is not modelled, or those that are.
    """
    values = _read_json(path)
    family = values.get("model_type")
    if not isinstance(family, str) or family not in FAMILIES:
        raise SpecError(f"{path}: {_unsupported(family)}")
    faults: list[str] = []
    config = ConfigReader(values, faults)
    config.refuse("is_encoder_decoder", only=False)
    table = FAMILIES[family](config)
    if faults:
        raise SpecError("\n".join(f"{path}: {fault}" for fault in faults))
    table["name"] = name or _name(values, path)
    table["source"] = f"config.json of {table['name']}"
    return check_spec(ModelSpec, {**table, **published_types(values)}, where=str(path))


def find_config(name: str) -> Path:
    """The ``config.json`` of ORG/NAME: from the local cache, or else downloaded.

    Raises
    ------
    SpecError
        There is no such model, it needs permission, or the network is not reachable.
    MissingDependencyError
        It is not in the cache, and huggingface-hub is not installed.
    """
    if not is_repository(name):
        raise SpecError(f"{name!r} is not of the form ORG/NAME.")
    for snapshot in _cached_snapshots(name):
        if os.path.isfile(snapshot / "config.json"):
            return snapshot / "config.json"
    return _download(name)


def _read_json(path: Path) -> dict[str, Any]:
    values = json_of(read_text(path), str(path))
    if not isinstance(values, dict):
        raise SpecError(f"{path}: must hold a JSON object.")
    return values


def _unsupported(family: object) -> str:
    supported = f"Supported: {', '.join(FAMILIES)}."
    if family is None:
        return f"model_type is missing. {supported}"
    text = str(family)[:40]
    refused = f"model_type {text!r} is not supported"
    if text in UNMODELLED:
        return f"{refused}: not modelled are {UNMODELLED[text]}."
    return f"{refused}.{did_you_mean(text, FAMILIES) or f' {supported}'}"


def _name(values: dict[str, Any], path: Path) -> str:
    given = values.get("_name_or_path")
    if isinstance(given, str) and given.strip():
        return given
    return Path(os.path.realpath(path)).parent.name or path.stem


def _cached_snapshots(name: str) -> Iterator[Path]:
    folder = _cache_folder() / f"models--{name.replace('/', '--')}"
    try:
        revision = read_text(folder / "refs" / "main").strip()
    except SpecError:
        revision = ""
    if revision:
        yield folder / "snapshots" / revision
    yield from sorted((folder / "snapshots").glob("*"))


def _cache_folder() -> Path:
    if cache := os.environ.get("HF_HUB_CACHE"):
        return Path(cache).expanduser()
    if home := os.environ.get("HF_HOME"):
        return Path(home).expanduser() / "hub"
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return Path(cache).expanduser() / "huggingface" / "hub"


def _download(name: str) -> Path:
    try:
        from huggingface_hub import errors, hf_hub_download
    except ImportError as error:
        raise MissingDependencyError(
            f"{name} is neither a built-in model nor in the Hugging Face cache; downloading "
            "its config.json needs huggingface-hub: pip install 'llm-gpu-planner[hub]'."
        ) from error
    try:
        return Path(hf_hub_download(name, "config.json", cache_dir=_cache_folder()))
    except errors.GatedRepoError as error:
        raise SpecError(
            f"{name} needs permission: accept its terms on https://huggingface.co/{name} and "
            "log in with `hf auth login`, or pass a config.json you have."
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise SpecError(
            f"Hugging Face has no model {name}, or it is private: check the spelling, or log "
            "in with `hf auth login`."
        ) from error
    except errors.LocalEntryNotFoundError as error:
        raise SpecError(
            f"Hugging Face is not reachable and the config.json of {name} is not in the "
            "cache: go online, or pass the path of a config.json."
        ) from error
    except errors.EntryNotFoundError as error:
        raise SpecError(f"{name} on Hugging Face has no config.json.") from error
    except (OSError, ValueError) as error:
        raise SpecError(f"The config.json of {name} cannot be downloaded: {error}.") from error

"""Models from Hugging Face: their ``config.json``, never their code or weights.

Parameters
----------
name : ORG/NAME of a repository
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from planner.base.read_files import UncheckedTable, parse_json
from planner.errors import MissingDependencyError, SpecError, did_you_mean
from planner.specs.hugging_face_families import FAMILIES, UNMODELLED, UNMODELLED_NAMES
from planner.specs.hugging_face_reader import ConfigReader
from planner.specs.model import ModelSpec
from planner.specs.published_quantization import published_types
from planner.specs.spec_files import check_spec, read_text

_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def is_repository(name: str) -> bool:
    """Return whether ``name`` has the form ORG/NAME.

    Parameters
    ----------
    name : text to test
    """
    return _REPOSITORY.fullmatch(name) is not None


def read_config(path: Path, name: str | None = None) -> ModelSpec:
    """Read the model from a ``config.json``.

    Raises SpecError with one line per error: file, key and problem. The error for an unsupported
    model type names its features that are not modelled, or the supported types.

    Parameters
    ----------
    path : ``config.json``
    name : name of the model; None: that of the folder
    """
    values = parse_json(read_text(path), str(path), infinite=True)
    if not isinstance(values, dict):
        raise SpecError(f"{path}: must hold a JSON object.")
    family = values.get("model_type")
    if not isinstance(family, str) or family not in FAMILIES:
        raise SpecError(f"{path}: {_unsupported(family)}")
    errors: list[str] = []
    config = ConfigReader(values, errors)
    config.refuse("is_encoder_decoder", supported=False)
    table = FAMILIES[family](config)
    if errors:
        raise SpecError("\n".join(f"{path}: {error}" for error in errors))
    table["name"] = name or _name(values, path)
    table["source"] = f"config.json of {table['name']}"
    try:
        published = published_types(values)
    except SpecError as error:
        raise SpecError(f"{path}: {error}") from error
    return check_spec(ModelSpec, {**table, **published}, where=str(path))


def find_config(name: str) -> Path:
    """Return the path of a model's ``config.json``: cached, else downloaded.

    Raises SpecError if there is no such model, it needs permission, or the network is not
    reachable; MissingDependencyError if it is not in the cache, and huggingface-hub is not
    installed.
    """
    if not is_repository(name):
        raise SpecError(f"{name!r} is not of the form ORG/NAME.")
    return cached_config(name) or _download(name)


def cached_config(name: str) -> Path | None:
    """Return the path of a model's ``config.json`` in the local cache; None if not there."""
    for snapshot in _cached_snapshots(name):
        if os.path.isfile(snapshot / "config.json"):
            return snapshot / "config.json"
    return None


def _unsupported(family: object) -> str:
    """Return the error message for a model_type that is missing or not supported."""
    supported = f"Supported: {', '.join(FAMILIES)}."
    if family is None:
        return f"model_type is missing. {supported}"
    text = str(family)[:40]
    refused = f"model_type {text!r} is not supported"
    if text in UNMODELLED:
        return f"{refused}: not modelled are {UNMODELLED[text]}."
    return f"{refused}.{did_you_mean(text, FAMILIES) or f' {supported}'}"


def unmodelled_model(name: str) -> str | None:
    """Return why a model of this name cannot be predicted; None if planner knows no reason.

    Parameters
    ----------
    name : name of a model, or ORG/NAME of a repository
    """
    short = name.rpartition("/")[2].lower()
    types = (each for begin, each in UNMODELLED_NAMES.items() if short.startswith(begin))
    family = next(types, None)
    return None if family is None else f"{name}: {_unsupported(family)}"


def _name(values: UncheckedTable, path: Path) -> str:
    repository = values.get("_name_or_path")
    if isinstance(repository, str) and repository.strip():
        return repository
    return Path(os.path.realpath(path)).parent.name or path.stem


def _cached_snapshots(name: str) -> Iterator[Path]:
    """Yield the snapshot folders of a model in the Hugging Face cache, the main revision first."""
    folder = _cache_folder() / f"models--{name.replace('/', '--')}"
    try:
        revision = read_text(folder / "refs" / "main").strip()
    except SpecError:
        revision = ""
    if revision:
        yield folder / "snapshots" / revision
    yield from sorted((folder / "snapshots").glob("*"))


def _cache_folder() -> Path:
    """Return the Hugging Face cache folder that the environment variables choose."""
    if cache := os.environ.get("HF_HUB_CACHE"):
        return Path(cache).expanduser()
    if home := os.environ.get("HF_HOME"):
        return Path(home).expanduser() / "hub"
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return Path(cache).expanduser() / "huggingface" / "hub"


def _download(name: str) -> Path:
    """Download the config.json of a model from Hugging Face; return its path or raise SpecError."""
    try:
        from huggingface_hub import constants, errors, hf_hub_download
    except ImportError as error:
        raise MissingDependencyError(
            f"{name} is neither a built-in model nor in the Hugging Face cache; downloading "
            "its config.json needs huggingface-hub: pip install 'llm-gpu-planner[hub]'."
        ) from error
    unreachable = (
        f"Hugging Face is not reachable and the config.json of {name} is not in the "
        "cache: go online, or pass the path of a config.json."
    )
    if _is_offline(constants.ENDPOINT):
        raise SpecError(unreachable)
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
        raise SpecError(unreachable) from error
    except errors.EntryNotFoundError as error:
        raise SpecError(f"{name} on Hugging Face has no config.json.") from error
    except (OSError, ValueError) as error:
        raise SpecError(f"The config.json of {name} cannot be downloaded: {error}.") from error


def _is_offline(endpoint: str) -> bool:
    """Return whether the hub is certainly unreachable: no proxy and no DNS answer."""
    import socket
    from urllib.parse import urlsplit
    from urllib.request import getproxies

    if {"http", "https", "all"} & getproxies().keys():
        return False
    try:
        socket.getaddrinfo(urlsplit(endpoint).hostname, 443)
    except OSError:
        return True
    return False

"""Kustomizations: Kubernetes objects of other files with patches, as ``kubectl kustomize`` builds.

Source: kubernetes-sigs/kustomize, api/types/kustomization.go, and kubectl.docs.kubernetes.io. Names
of objects are not changed, and nothing is fetched: a base elsewhere is listed as not found.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

from planner.base import read_files
from planner.documents.shell.edits import LARGEST, implied_option
from planner.documents.yaml_tree import read_trees
from planner.documents.yaml_writer import documents
from planner.errors import LaunchError
from planner.launch.read.parsed_launch import ParsedCommand
from planner.launch.wrappers.read_helm_charts import without_positions

_NAMES = ("kustomization.yaml", "kustomization.yml", "Kustomization")
_SOURCES = ("resources", "bases", "components")
_PATCHES = ("patches", "patchesStrategicMerge", "patchesJson6902")
_MERGED_BY_NAME = re.compile(r"(apps/|batch/)?v\d\w*")
"""API versions whose lists kustomize merges by name; it replaces the lists of other objects."""
_MAX_DEPTH = 8


def find_kustomization(path: Path) -> Path | None:
    """Return the kustomization in a folder, or the one that a file is or is a patch of; or None."""
    if path.name in _NAMES:
        return path
    for folder in (path,) if path.is_dir() else (path.parent, path.parent.parent):
        for file in filter(Path.is_file, (folder / name for name in _NAMES)):
            with suppress(LaunchError):
                is_patch = path.name in {Path(name).name for name, _ in _patches(file)}
                return file if path.is_dir() or is_patch else None
    return None


def read_kustomization(
    file: Path, read: Callable[[Path, str], Iterator[ParsedCommand]]
) -> list[tuple[Path, ParsedCommand]]:
    """Return the commands of what a kustomization builds; ``read`` reads its documents.

    Raises LaunchError if a file of it is no YAML.
    """
    missing: list[str] = []
    text = documents(_built(file, missing, 0))
    note = f"{file.name} was built; lines are those of what `kubectl kustomize` prints."
    unknown = tuple(implied_option(f"{name} (not found)", name) for name in missing)
    return [
        (
            file,
            replace(
                command,
                notes=(*command.notes, note),
                options=without_positions(command.options),
                unknown=(*command.unknown, *unknown),
            ),
        )
        for command in read(file, text)
    ]


def _objects(file: Path, text: str | None = None) -> list[Any]:
    """Return the documents of a file as values. Raises LaunchError if it cannot be read."""
    text = read_files.read_text(file, LARGEST, LaunchError) if text is None else text
    return [deepcopy(tree.data) for tree in read_trees(text, file.name) if tree.data]


def _section(file: Path) -> dict[str, Any]:
    return next((each for each in _objects(file) if isinstance(each, dict)), {})


def _list(section: object, key: str) -> list[Any]:
    value = section.get(key) if isinstance(section, dict) else None
    return value if isinstance(value, list) else []


def _sections(section: object, key: str) -> list[dict[str, Any]]:
    return [each for each in _list(section, key) if isinstance(each, dict)]


def _name_of(value: dict[str, Any]) -> object:
    """Return the name of an object; None if it has none."""
    metadata = value.get("metadata")
    return metadata.get("name") if isinstance(metadata, dict) else None


def _built(file: Path, missing: list[str], depth: int) -> list[dict[str, Any]]:
    """Return the objects that a kustomization builds; names of absent files go to ``missing``."""
    section = _section(file)
    built: list[dict[str, Any]] = []
    for name in (str(name) for key in _SOURCES for name in _list(section, key)):
        source = file.parent / name
        inner = find_kustomization(source) if source.is_dir() else None
        if inner is not None and depth < _MAX_DEPTH:
            built += _built(inner, missing, depth + 1)
        elif source.is_file():
            built += [each for each in _objects(source) if isinstance(each, dict)]
        else:
            missing.append(name)
    built += [_config_map(file, each) for each in _sections(section, "configMapGenerator")]
    for name, patch in _patches(file):
        if not name or (file.parent / name).is_file():
            _apply(file, name, patch, built)
        else:
            missing.append(name)
    for image in _sections(section, "images"):
        _set_images(built, image)
    for count in _sections(section, "replicas"):
        for each in built:
            if _name_of(each) == count.get("name") and isinstance(each.get("spec"), dict):
                each["spec"]["replicas"] = count.get("count")
    return built


def _config_map(file: Path, generator: dict[str, Any]) -> dict[str, Any]:
    """Return the ConfigMap that a generator makes of literals, variables and files."""
    pairs = [str(pair).partition("=") for pair in _list(generator, "literals")]
    for name in map(str, _list(generator, "envs")):
        with suppress(LaunchError):
            lines = read_files.read_text(file.parent / name, LARGEST, LaunchError).splitlines()
            pairs += [line.partition("=") for line in lines if "=" in line and line[0] != "#"]
    data = {key: value.strip("\"'") for key, _, value in pairs}
    for name in _list(generator, "files"):
        key, equals, path = str(name).partition("=")
        with suppress(LaunchError):
            content = read_files.read_text(file.parent / (path or key), LARGEST, LaunchError)
            data[key if equals else Path(key).name] = content
    return {"kind": "ConfigMap", "metadata": {"name": generator.get("name")}, "data": data}


def _patches(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each patch of a kustomization: its file, "" for one inside, and its entry."""
    section = _section(file)
    for each in (each for key in _PATCHES for each in _list(section, key)):
        if isinstance(each, dict):
            yield str(each.get("path") or ""), each
        elif "\n" in str(each):
            yield "", {"patch": each}
        else:
            yield str(each), {}


def _apply(file: Path, path: str, entry: dict[str, Any], built: list[dict[str, Any]]) -> None:
    """Change the objects in place as a patch says, by merging it or by its operations."""
    text = None if path else str(entry.get("patch") or "")
    for patch in _objects(file.parent / (path or file.name), text):
        described = entry.get("target") or patch
        target = described if isinstance(described, dict) else {}
        name = target.get("name") or _name_of(target)
        for index, each in enumerate(built):
            kind, named = each.get("kind"), _name_of(each)
            if target.get("kind") not in (None, ".*", kind) or name not in (None, ".*", named):
                continue
            if isinstance(patch, dict):
                by_name = _MERGED_BY_NAME.fullmatch(str(each.get("apiVersion"))) is not None
                built[index] = _merged(each, patch, by_name)
                continue
            for operation in patch if isinstance(patch, list) else ():
                with suppress(KeyError, IndexError, ValueError, TypeError, AttributeError):
                    _operate(each, operation)


def _merged(base: Any, patch: Any, by_name: bool) -> Any:
    """Return a value with a patch merged in; null removes a key."""
    if isinstance(base, dict) and isinstance(patch, dict):
        parts = {
            key: _merged(base.get(key), value, by_name)
            for key, value in patch.items()
            if value is not None
        }
        return {**{key: value for key, value in base.items() if key not in patch}, **parts}
    entries = [*base, *patch] if isinstance(base, list) and isinstance(patch, list) else []
    names = [each.get("name") if isinstance(each, dict) else None for each in entries]
    if by_name and names and all(isinstance(name, str) for name in names):
        first, second = ({each["name"]: each for each in part} for part in (base, patch))
        unique = dict.fromkeys(names)
        return [_merged(first.get(name), second.get(name, {}), by_name) for name in unique]
    return patch


def _operate(document: Any, operation: dict[str, Any]) -> None:
    """Change a document by an operation of a JSON patch (RFC 6902): add, replace or remove."""
    pointer = str(operation["path"]).split("/")[1:]
    *parents, last = (part.replace("~1", "/").replace("~0", "~") for part in pointer)
    for key in parents:
        document = document[int(key)] if isinstance(document, list) else document[key]
    if isinstance(document, list):
        index = len(document) if last == "-" else int(last)
        inserted = operation["op"] == "add"
        document[index : index + (not inserted)] = (
            [] if operation["op"] == "remove" else [operation["value"]]
        )
    elif operation["op"] == "remove":
        del document[last]
    else:
        document[last] = operation["value"]


def _set_images(value: Any, image: dict[str, Any]) -> None:
    """Set the name and tag of an image wherever it is used below a value."""
    for each in value if isinstance(value, list) else [*value.values()]:
        if isinstance(each, list | dict):
            _set_images(each, image)
    if isinstance(value, dict) and isinstance(value.get("image"), str):
        name, _, tag = value["image"].partition(":")
        if name == image.get("name"):
            tag = str(image.get("newTag") or tag)
            value["image"] = str(image.get("newName") or name) + (f":{tag}" if tag else "")

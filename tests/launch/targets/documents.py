"""The files beside a command, as a reader finds them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import yaml
from round_trip import found_of, stated

from planner.launch.read.parsed_launch import ParsedCommand
from planner.launch.target import LaunchDraft, LaunchOutputFile, LaunchTarget


def with_files(target: LaunchTarget, draft: LaunchDraft) -> ParsedCommand:
    """The first command of a draft and the documents that it names."""
    found = found_of(target, draft)
    process = draft.processes[0]
    for argument in process.launcher_arguments:
        name, *rest = [word if isinstance(word, str) else None for word in argument.words]
        found = replace(found, options={**found.options, str(name): stated(str(name), *rest)})
    files = {
        file.name: document(target.name, file)
        for file in draft.files
        if file.name.endswith((".json", ".yaml")) and file.name != "config.json"
    }
    return replace(found, files=files)


def document(target: str, file: LaunchOutputFile) -> ParsedCommand:
    """One YAML or JSON file."""
    values = (json.loads if file.name.endswith(".json") else yaml.safe_load)(file.text)
    return values_found(target, values, file.name, file.text)


def values_found(
    target: str, values: Mapping[str, Any], name: str = "x", text: str = ""
) -> ParsedCommand:
    """A document of these values."""
    options = {key: stated(key, *texts) for key, texts in _flat(values, "")}
    return ParsedCommand(target=target, name=name, text=text, options=options)


def _flat(values: Mapping[str, Any], path: str) -> Iterator[tuple[str, tuple[str | None, ...]]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}{key}.")
        elif isinstance(value, list) and all(not isinstance(one, Mapping) for one in value):
            yield f"{path}{key}", tuple(map(_text, value))
        elif isinstance(value, list):
            for index, one in enumerate(value):
                yield from _flat(one, f"{path}{key}.{index}.")
        else:
            yield f"{path}{key}", (_text(value),)


def _text(value: Any) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    return "null" if value is None else str(value)

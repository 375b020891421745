"""What a draft says, option by option, however its target spells and where it puts them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml

from planner.launch.target import (
    CommandWords,
    LaunchDraft,
    LaunchOutputFile,
    Process,
    ShellVariable,
)

FLAG = "flag"


def said(draft: LaunchDraft, process: str) -> dict[str, str]:
    """The options of a process of a draft, of the documents beside it, and its nodes, copies and
    variables; a flag is ``flag``."""
    if not draft.processes and process != "benchmark":  # documents that a cluster takes as they are
        (file,) = (one for one in draft.files if one.name.endswith(".yaml"))
        return dict(_component(yaml.safe_load(file.text), process))
    processes = [*draft.processes, *draft.benchmark]
    (one,) = (each for each in processes if each.name == process)
    pairs = [
        ("nodes", str(one.num_nodes)),
        ("gpus per node", str(one.gpus_per_node)),
        ("copies", str(one.copies)),
        *one.environment.items(),
        *_options(map(_words, (*one.launcher_arguments, *one.arguments))),
        *_documents([file for file in draft.files if _is_read(file, one)]),
    ]
    found = dict(pairs)
    twice = {name for name, _ in pairs if [each for each, _ in pairs].count(name) > 1}
    assert not twice, f"written twice: {twice}"
    return found


def _documents(files: list[LaunchOutputFile]) -> Iterator[tuple[str, str]]:
    """The options of documents; a key that several could have goes with the name of its file."""
    for file in files:
        stem = file.name.rpartition(".")[0]
        has_own = stem == "fsdp_config" or (stem == "ds_config" and len(files) > 1)
        yield from _flat(_loaded(file), f"{stem}." if has_own else "")


def words_of(process: Process) -> dict[str, str]:
    """The options of a process alone."""
    return dict(_options(map(_words, process.arguments)))


def _is_read(file: LaunchOutputFile, process: Process) -> bool:
    """Whether a process reads a document: its own, or one that all have."""
    stem, _, ending = file.name.rpartition(".")
    others = {"serve", "prefill", "decode"} - {process.name}
    if process.name == "benchmark":
        return False
    return ending in ("json", "yaml") and file.name != "config.json" and stem not in others


def _words(argument: CommandWords) -> list[str]:
    return [
        one if isinstance(one, str) else f"{one.prefix}{_value(one)}{one.suffix}"
        for one in argument.words
    ]


def _value(word: ShellVariable) -> str:
    return f"{word.plus} + {word.times} * {word.name}" if word.times else f"${word.name}"


def _options(lines: Iterable[list[str]]) -> Iterator[tuple[str, str]]:
    """Options with their texts; the words before the first are the command."""
    command: list[str] = []
    lines = list(lines)
    extra = [line[1] for line in lines if line[0] == "--extra-inputs"]  # may stand several times
    if extra:
        lines = [line for line in lines if line[0] != "--extra-inputs"]
        yield "--extra-inputs", " ".join(extra)
    for line in lines:
        first, *rest = line
        if first.startswith("-") and first != "-m":
            while rest and rest[0].startswith("--"):
                yield first, FLAG
                first, *rest = rest
            yield first, " ".join(rest) or FLAG
        elif "=" in first and not rest:
            name, _, value = first.partition("=")
            yield name, value
        elif first.startswith("activation-checkpoint:"):
            yield first, FLAG
        else:
            command += line
    yield "command", " ".join(command)


def _component(graph: Mapping[str, Any], name: str) -> Iterator[tuple[str, str]]:
    (one,) = (each for each in graph["spec"]["components"] if each["name"] == name)
    (container,) = one["podTemplate"]["spec"]["containers"]
    lines: list[list[str]] = []
    for word in container["args"]:
        if word.startswith("--") or not lines:
            lines.append([])
        lines[-1].append(word)
    options = dict(_options(lines))
    options["command"] = " ".join(container["command"])
    inner = json.loads(options.pop("--override-engine-args", "{}"))
    yield "type", one["type"]
    yield "copies", str(one["replicas"])
    yield "nodes", str(one.get("multinode", {}).get("nodeCount", 1))
    yield "gpus per node", container["resources"]["limits"]["nvidia.com/gpu"]
    yield from options.items()
    yield from _flat(inner, "")


def _loaded(file: LaunchOutputFile) -> Mapping[str, Any]:
    read = json.loads if file.name.endswith(".json") else yaml.safe_load
    document = read(file.text)
    assert isinstance(document, dict)
    return document


def _flat(document: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    for key, value in document.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{path}{key}.")
        elif isinstance(value, list) and any(isinstance(one, dict) for one in value):
            yield f"{path}{key}", json.dumps(value)
        elif isinstance(value, list):
            yield f"{path}{key}", " ".join(map(str, value))
        else:
            yield f"{path}{key}", str(value).lower() if isinstance(value, bool) else str(value)

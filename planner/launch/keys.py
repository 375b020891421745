"""The keys of a document, YAML, JSON or TOML, as options, and the target that they are of."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from planner.base import reading
from planner.documents.shell import HereDocument, Script
from planner.documents.shell.text import Given
from planner.documents.tree import Tree, flattened, plain_text, read_trees
from planner.errors import LaunchError
from planner.launch.targets import readers
from planner.launch.understood import Found

_OF_OPTIONS = ("vllm", "sglang")


def documents_in(path: Path, text: str) -> Iterator[Found]:
    """Every document of a file, with its target, empty where it is none's."""
    if path.suffix.lower() == ".toml":
        yield _of_toml(path, text)
        return
    for tree in read_trees(text, path.name):
        line = min((leaf.line for leaf in tree.values.values()), default=1)
        target = _target_of(tree)
        yield Found(
            target=target,
            name=path.name,
            text=text,
            line=line,
            options=_of_command(target, _leaves(tree)),
        )


def _of_command(target: str, options: Mapping[str, Given]) -> Mapping[str, Given]:
    """The keys of a document that has options of a command, as that calls them."""
    if target not in _OF_OPTIONS:
        return options
    accepted = readers()[target].options
    found: dict[str, Given] = {}
    for name, given in options.items():
        option = accepted.find(f"--{name.replace('_', '-')}")
        # A flag that is off in a document is one that is not there.
        if option is None or given.texts != ("false",):
            own = name if option is None else option.name
            found[own] = replace(given, option=own)
    return found


def _leaves(tree: Tree) -> dict[str, Given]:
    """The values of a document; a list of plain values is one, its entries are none."""
    return {
        name: leaf.given
        for name, leaf in tree.values.items()
        if name.rpartition(".")[0] not in tree.values
    }


def _target_of(tree: Tree) -> str:
    return _target_of_values({name: leaf.value for name, leaf in tree.values.items()})


def _target_of_values(values: Mapping[str, object]) -> str:
    return next((one.name for one in readers().values() if one.is_of(values)), "")


def _of_toml(path: Path, text: str) -> Found:
    """A TOML document; its values have no places, so that it cannot be changed."""
    values = dict(flattened(reading.toml_of(text, str(path), LaunchError)))
    options = {
        name: Given(
            option=name,
            texts=tuple(map(plain_text, value if isinstance(value, list) else [value])),
            line=1,
            spans=(None,) * (len(value) if isinstance(value, list) else 1),
            whole=None,
        )
        for name, value in values.items()
    }
    return Found(target=_target_of_values(values), name=path.name, text=text, options=options)


def of_here_document(path: Path, script: Script, document: HereDocument, name: str) -> Found:
    """A document that a script writes, with places in the script."""
    place = f"{path.name}:{document.line}"
    try:
        trees = read_trees(document.text, place)
    except LaunchError:  # what text alone does not tell may leave it no YAML
        told = re.sub(r"[^\n]*\$[^\n]*", lambda line: " " * len(line[0]), document.text)
        trees = read_trees(told, place)
    options = {} if not trees else _leaves(trees[0])
    moved = {
        key: Given(
            option=given.option,
            texts=given.texts,
            line=given.line + document.line - 1,
            spans=tuple(None if one is None else document.place(one) for one in given.spans),
            whole=None if given.whole is None else document.place(given.whole),
            unknown=given.unknown,
        )
        for key, given in options.items()
    }
    return Found(
        target=_target_of(trees[0]) if trees else "",
        name=path.name,
        text=script.text,
        line=document.line,
        options=moved,
    )

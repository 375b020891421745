"""Every command and document of a file that a target reads."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from planner.base.reading import read_text, toml_of
from planner.errors import LaunchError
from planner.launch.gpus import number_of
from planner.launch.launchers import Inner, given_by, inner_commands, read_script
from planner.launch.reading.arguments import read_arguments
from planner.launch.reading.config_maps import config_maps
from planner.launch.reading.containers import Container, containers_of, script_of
from planner.launch.reading.shell import HereDocument, Script, Word
from planner.launch.reading.shell.values import computed
from planner.launch.reading.tree import Tree, read_trees
from planner.launch.target import Target
from planner.launch.targets import targets
from planner.launch.text import LARGEST, Given
from planner.launch.understood import Found, World

_MOST_NAMED = 5
# All but one of so many options of a list must be known.
_MOST_OF = 4
_DOCUMENTS = (".yaml", ".yml", ".json", ".toml")
_YAML = (".yaml", ".yml")
_PROSE = (".md", ".rst", ".ipynb", ".html", ".py")
_POOL_OPTIONS = ("--disaggregation-mode", "--is-prefill-worker", "--is-decode-worker")
# What shells do beside starting programs.
_PLUMBING = frozenset(
    {
        *("set", "export", "cd", "echo", ":", "mkdir", "exit", "source", ".", "read", "shift"),
        *("trap", "wait", "sleep", "kill", "cat", "ulimit", "test", "[", "printf", "unset"),
        *("local", "module", "conda", "pip", "cp", "rm", "ls", "exec", "eval", "return", "true"),
    }
)


class _Unread(LaunchError):
    """A file that an option names and that is not here, or is not read."""


def is_document(path: Path) -> bool:
    """Whether a file is YAML, JSON or TOML, not a script."""
    return path.suffix.lower() in _DOCUMENTS


def launches(path: Path, text: str) -> Iterator[Found]:
    """What a file starts, in order; files that its commands name are read beside it.

    Raises
    ------
    LaunchError
        It cannot be read, or its scheduler and its launcher contradict each other.
    """
    if is_document(path):
        yield from _of_documents(path, text)
        return
    if path.suffix.lower() in _PROSE:
        raise LaunchError(
            f"{path}: is a text for people, or a program: put the command that it shows into a "
            "file of its own, such as run.sh."
        )
    script = read_script(text, {}, path.name)
    if text.lstrip().startswith("-"):
        yield from _of_arguments(path, script)
        return
    for inner in inner_commands(script):
        target = started(inner.words)
        if target is not None:
            inner.require_agreement(path.name)
            yield of_command(path, script, inner, target)


def _of_arguments(path: Path, script: Script) -> Iterator[Found]:
    """A list of arguments without a program: of the target that knows most of them."""
    words = [word for command in script.commands for word in command.words]
    names = {word.begins.partition("=")[0] for word in words if word.begins.startswith("--")}
    known = {
        target: sum(name in target.options.options for name in names)
        for target in targets().values()
    }
    target = max(known, key=lambda one: known[one])
    if known[target] * _MOST_OF < len(names) * (_MOST_OF - 1):
        return
    inner = Inner(words=tuple(words), environment={}, world=World(), line=words[0].line)
    yield of_command(path, script, inner, target)


def started(words: Sequence[Word]) -> Target | None:
    """The target whose program this is."""
    texts = [_told(word) for word in words]
    return next((one for one in targets().values() if one.starts(texts)), None)


def of_command(path: Path, script: Script, inner: Inner, target: Target) -> Found:
    """A command as the target's parser reads it."""
    is_module = bool(inner.words) and inner.words[0].text == "-m"
    arguments = read_arguments(inner.words[is_module:], target.options)
    return Found(
        target=target.name,
        name=path.name,
        text=script.text,
        line=inner.line,
        options=arguments.options,
        unknown=(*arguments.unknown, *arguments.untold),
        repeated=tuple(arguments.repeated),
        positional=tuple(arguments.positional),
        environment={name: given_by(name, word) for name, word in inner.environment.items()},
        world=inner.world,
        files=_files(path, script, [*arguments.options.values(), *arguments.positional]),
    )


def _told(word: Word) -> str:
    """A word's text, or the end of it where its beginning is not known."""
    if word.text is not None:
        return word.text
    return next((piece.text for piece in reversed(word.pieces) if piece.text), "")


def _files(
    path: Path, script: Script, options: Iterable[Given], *, is_inside: bool = False
) -> dict[str, Found]:
    """The documents that options name: those that the script writes, or that stand beside it.

    Documents name further ones; ``is_inside`` says that these are named so.
    """
    found: dict[str, Found] = {}
    for given in options:
        for text in given.texts:
            if text is None or not text.lower().endswith(_DOCUMENTS):
                continue
            document = _document(path, script, text)
            if document is not None and not is_inside:
                found |= _files(path, script, document.options.values(), is_inside=True)
            if document is not None:
                found[text] = document
    return found


def _document(path: Path, script: Script, name: str) -> Found | None:
    for written, document in script.files.items():
        if Path(written).name == Path(name).name:
            return _of_here_document(path, script, document, Path(name).name)
    for place in (path.parent / name, path.parent / Path(name).name):
        try:
            text = read_text(place, LARGEST, _Unread)
        except _Unread:
            continue
        return next(_trees(place, text), None)
    return None


def _of_here_document(path: Path, script: Script, document: HereDocument, name: str) -> Found:
    trees = read_trees(document.text, f"{path.name}:{document.line}")
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


def _of_documents(path: Path, text: str) -> Iterator[Found]:
    """The documents that are a target's own, and the commands of containers."""
    if path.suffix.lower() in _YAML:
        yield from _of_containers(path, text)
    alone = Script(name=path.name, text=text, commands=(), variables={}, directives=(), files={})
    for found in _trees(path, text):
        if found.target:
            yield replace(found, files=_files(path, alone, found.options.values()))


def _of_containers(path: Path, text: str) -> Iterator[Found]:
    """What the containers of a file start; those that follow another are part of its job."""
    containers = containers_of(text, path.name)
    brought = config_maps(text, path.name) if containers else {}
    for container in containers:
        script = script_of(container, text, path.name)
        script = replace(script, files={**brought, **script.files})
        for inner in inner_commands(script):
            target = started(inner.words)
            if target is not None and not container.is_follower:
                placed = replace(
                    inner,
                    words=(*inner.words, *_pool_words(container, inner.words)),
                    world=_within(inner.world, container.world, path.name),
                )
                yield of_command(path, script, placed, target)


def _pool_words(container: Container, words: Sequence[Word]) -> Iterator[Word]:
    """The pool of a worker, where its container tells it and not its command."""
    if container.role and not any(word.begins in _POOL_OPTIONS for word in words):
        for text in (_POOL_OPTIONS[0], container.role):
            yield Word.of(computed(text), container.line, text)


def _within(own: World, around: World, name: str) -> World:
    """What a command says of where it runs, and its container where that says nothing.

    Raises
    ------
    LaunchError
        The command starts on more GPUs of a node than its container has.
    """
    wants, has = own.gpus_per_node, around.gpus_per_node
    if (number_of(wants) or 0) > (number_of(has) or math.inf) and wants and has:
        raise LaunchError(
            f"{name}: line {wants.line}: {wants.option} {wants.texts[0]} is more than the "
            f"{has.texts[0]} of {has.option} on line {has.line}. Change one of them."
        )
    told = {each.name: getattr(own, each.name) for each in fields(World)}
    return replace(around, **{name: value for name, value in told.items() if value is not None})


def _trees(path: Path, text: str) -> Iterator[Found]:
    """Every document of a file, with its target, empty where it is none's."""
    if path.suffix.lower() == ".toml":
        yield _of_toml(path, text)
        return
    for tree in read_trees(text, path.name):
        line = min((leaf.line for leaf in tree.values.values()), default=1)
        yield Found(
            target=_target_of(tree),
            name=path.name,
            text=text,
            line=line,
            options=_leaves(tree),
        )


def _leaves(tree: Tree) -> dict[str, Given]:
    """The values of a document; a list of plain values is one, its entries are none."""
    return {
        name: leaf.given
        for name, leaf in tree.values.items()
        if name.rpartition(".")[0] not in tree.values
    }


def _target_of(tree: Tree) -> str:
    values = {name: leaf.value for name, leaf in tree.values.items()}
    return _target_of_values(values)


def _target_of_values(values: Mapping[str, Any]) -> str:
    return next((one.name for one in targets().values() if one.is_of(values)), "")


def _of_toml(path: Path, text: str) -> Found:
    """A TOML document; its values have no places, so that it cannot be changed."""
    values = dict(_flat(toml_of(text, str(path), LaunchError)))
    options = {
        name: Given(
            option=name,
            texts=tuple(map(_toml_text, value if isinstance(value, list) else [value])),
            line=1,
            spans=(None,) * (len(value) if isinstance(value, list) else 1),
            whole=None,
        )
        for name, value in values.items()
    }
    return Found(target=_target_of_values(values), name=path.name, text=text, options=options)


def _flat(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def _toml_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def nothing_found(path: Path, text: str) -> str:
    """What a file without a launch does, as far as that helps."""
    known = ", ".join(targets())
    if path.suffix.lower() in _DOCUMENTS:
        return f"{path}: is no document of a tool that planner knows. It knows: {known}."
    programs = dict.fromkeys(
        _told(inner.words[0])
        for inner in inner_commands(read_script(text, {}, path.name))
        if _told(inner.words[0]) not in _PLUMBING
    )
    names = [name for name in programs if name][:_MOST_NAMED]
    does = f"it runs {', '.join(names)}" if names else "it runs no program"
    return f"{path}: starts nothing that planner knows: {does}. It knows: {known}."

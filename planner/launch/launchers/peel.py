"""Wrappers taken off the words of a command, one after the other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from planner.base.records import record
from planner.errors import LaunchError
from planner.launch.launchers.nested import joined, script_in, script_of
from planner.launch.launchers.options import consumed
from planner.launch.launchers.programs import (
    ACCELERATE,
    MODULES,
    PROGRAMS,
    QUIET,
    Program,
)
from planner.launch.launchers.world import Layer, hosts, layer_of
from planner.launch.reading.containers import SHELLS, program_of
from planner.launch.reading.shell import Command, Script, Word

_PYTHON = re.compile(r"(?:python|pypy)(?:\d+(?:\.\d+)*)?")
_PYTHON_VALUED = ("-W", "-X")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=")
_MOST_NESTED = 6
_ACCELERATE_MODULE = "accelerate.commands.launch"


@record(kw_only=True)
class Peeled:
    """A program with its words, the variables given to it, and the layers that start it."""

    words: tuple[Word, ...]
    environment: Mapping[str, Word]
    layers: tuple[Layer, ...]


def peeled(
    script: Script,
    words: Sequence[Word],
    environment: Mapping[str, Word],
    layers: tuple[Layer, ...],
    depth: int = 0,
) -> Iterator[Peeled]:
    """What a command starts: itself, what it wraps, or the commands of a script inside it.

    Raises
    ------
    LaunchError
        Scripts are nested too deeply, or one is never closed.
    """
    if depth > _MOST_NESTED:
        line = words[0].line if words else 0
        raise LaunchError(
            f"{script.name}:{line}: commands inside commands more than {_MOST_NESTED} deep are "
            "not read: give the inner one in a file of its own."
        )
    state = Peeled(words=tuple(words), environment=environment, layers=layers)
    while state.words:
        program = named(state.words[0])
        name = (program.text or "").rpartition("/")[2]
        state = replace(state, words=(program, *state.words[1:]))
        if program.text is None:
            # A variable that nothing sets: what follows it may still be a command.
            state = replace(state, words=state.words[1:])
        elif name in QUIET:
            return
        elif name == "eval" and len(state.words) > 1:
            text = joined(state.words[1:])
            yield from _all(script, state, script_in(text, state.environment, script), depth)
            return
        elif name in SHELLS:
            yield from _shell(script, state, depth)
            return
        elif _PYTHON.fullmatch(name):
            state, is_program = _python(state)
            if is_program:
                yield state
                return
        elif name in ("accelerate", "accelerate-launch"):
            yield _accelerate(state)
            return
        elif name in PROGRAMS and _is_wrapper(PROGRAMS[name], state.words):
            following = _unwrapped(script, state, PROGRAMS[name], depth)
            if not isinstance(following, Peeled):
                yield from following
                return
            state = following
        else:
            yield state
            return


def named(word: Word) -> Word:
    """A program whose folder is not known: its name alone, where that is."""
    if word.text is not None or not word.pieces:
        return word
    tail = ""
    for piece in reversed(word.pieces):
        if piece.unknown:
            break
        tail = piece.text + tail
    name = tail.rpartition("/")[2]
    return replace(word, text=name, span=None, unknown="") if "/" in tail and name else word


def _is_wrapper(program: Program, words: Sequence[Word]) -> bool:
    return not program.first or (len(words) > 1 and words[1].text in program.first)


def _python(state: Peeled) -> tuple[Peeled, bool]:
    """What Python runs, and whether that is the program itself."""
    words, index = state.words, 1
    while index < len(words):
        text = words[index].text
        if text == "-m" and index + 1 < len(words):
            module = words[index + 1].text or ""
            rest = words[index + 1 :]
            if module == _ACCELERATE_MODULE:
                return _accelerate(replace(state, words=rest)), True
            if module in MODULES:
                names = {id(MODULES[one]): one for one in MODULES}
                tool = "deepspeed" if "deepspeed" in names[id(MODULES[module])] else "torchrun"
                first = replace(rest[0], text=tool, span=None)
                return replace(state, words=(first, *rest[1:])), False
            return replace(state, words=words[index:]), True
        if text == "-c":
            return replace(state, words=()), False
        if text is None or not text.startswith("-"):
            script = (named(words[index]), *words[index + 1 :])
            return replace(state, words=script), script[0].text is not None
        index += 2 if text in _PYTHON_VALUED else 1
    return replace(state, words=()), False


def _accelerate(state: Peeled) -> Peeled:
    """``accelerate launch`` keeps its words: its options say how to train."""
    words = state.words
    if words[0].text != "accelerate":
        launch = [replace(words[0], text=text, span=None) for text in ("accelerate", "launch")]
        words = (*launch, *words[1:])
    if words[1:2] and words[1].text == "launch":
        options, _ = consumed(ACCELERATE, words[1:])
        layers = (*state.layers, layer_of("accelerate", options))
        return replace(state, words=words, layers=layers)
    return replace(state, words=words)


def _unwrapped(
    script: Script, state: Peeled, program: Program, depth: int
) -> Peeled | Iterator[Peeled]:
    """The words behind a wrapper, or the commands that it is given as a text."""
    words = state.words[1:] if program.first else state.words
    options, rest = consumed(program, words)
    environment = dict(state.environment)
    if program.does in ("container", "inside"):
        environment |= _given_to_container(options)
        if program.does == "container":
            rest = _from_image(options, rest)
    if program.does == "env":
        rest = _assigned(rest, environment)
    if program.does == "dashes":
        rest = next((words[i + 1 :] for i, one in enumerate(words) if one.text == "--"), ())
    layers = (*state.layers, *_hosts(script, program, options))
    if (layer := layer_of(program.does, options)).said or layer.gpu:
        layers = (*layers, layer)
    inside = Peeled(words=tuple(rest), environment=environment, layers=layers)
    if program.does == "remote" and len(rest) == 1 and " " in rest[0].raw:
        return _all(script, inside, script_in(rest[0], environment, script), depth)
    is_given = program.does in ("slurm", "remote") and len(rest) <= 1
    if is_given and (commands := _documents(script, state, rest)) is not None:
        return _all(script, inside, commands, depth)
    return inside


def _hosts(
    script: Script, program: Program, options: Sequence[tuple[str, Word | None]]
) -> Iterator[Layer]:
    """The nodes that a launcher is given by name, or in a file that the script writes."""
    for name, word in options:
        if word is None or word.text is None or program.does not in ("deepspeed", "mpi"):
            continue
        if name.lstrip("-") in ("hostfile", "machinefile", "f") or (
            name == "-H" and program.does == "deepspeed"
        ):
            known = word.text.removeprefix("./")
            if (listed := script.files.get(known) or script.files.get(word.text)) is not None:
                yield hosts(program.does, name, word, listed)
        elif name in ("-H", "--host", "-host", "-hosts"):
            yield hosts(program.does, name, word, None)


def _shell(script: Script, state: Peeled, depth: int) -> Iterator[Peeled]:
    """The commands of ``bash -c TEXT``, or of a here-document that a shell reads."""
    rest, is_text = list(state.words[1:]), False
    while rest and (rest[0].text or "").startswith(("-", "+")):
        text = rest.pop(0).text or ""
        is_text = is_text or ("c" in text and not text.startswith("--"))
        if text in ("-o", "+o", "-O", "+O", "--rcfile", "--init-file"):
            del rest[:1]
    commands: Sequence[Command] | None
    if is_text:
        commands = script_in(rest[0], state.environment, script) if rest else ()
    else:
        commands = _documents(script, state, rest)
    if commands is not None:
        yield from _all(script, state, commands, depth)


def _all(
    script: Script, state: Peeled, commands: Sequence[Command], depth: int
) -> Iterator[Peeled]:
    for command in commands:
        environment = {**state.environment, **command.environment}
        yield from peeled(script, command.words, environment, state.layers, depth + 1)


def _documents(script: Script, state: Peeled, rest: Sequence[Word]) -> Sequence[Command] | None:
    """The commands of a here-document that a shell or scheduler is given, by name or as input."""
    name = rest[0].text if rest else None
    if name is not None:
        for known, document in script.files.items():
            if known == name or known == name.removeprefix("./"):
                return script_of(document, script)
        return None
    first, last = state.words[0].line, state.words[-1].line + 1
    for known, document in script.files.items():
        if known.startswith("<<") and first <= document.line <= last + 1:
            return script_of(document, script)
    return None


def _assigned(rest: Sequence[Word], environment: dict[str, Word]) -> Sequence[Word]:
    """The words behind ``NAME=value``."""
    index = 0
    while index < len(rest) and (found := _ASSIGNMENT.match(rest[index].begins or "")):
        environment[found[1]] = rest[index].after(found.end())
        index += 1
    return rest[index:]


def _given_to_container(options: Sequence[tuple[str, Word | None]]) -> dict[str, Word]:
    found: dict[str, Word] = {}
    for name, word in options:
        if name in ("-e", "--env") and word is not None:
            _assigned([word], found)
    return found


def _from_image(options: Sequence[tuple[str, Word | None]], rest: Sequence[Word]) -> Sequence[Word]:
    """The command of a container, which its entry point or image may begin; the image is first."""
    if not rest:
        return ()
    image, words = rest[0], rest[1:]
    for name, word in options:
        if name == "--entrypoint" and word is not None and word.text:
            return (word, *words)
    return program_of(image.text or image.raw, words, image.line)

"""Remove the wrappers of a command, one after the other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from planner.base.records import record
from planner.documents.shell import Command, HereDocument, Script, Word
from planner.documents.shell.nested_scripts import read_inner
from planner.documents.shell.syntax import Pieces, TextPiece, computed_text
from planner.errors import LaunchError
from planner.launch.option_table import option_aliases, shipped_rows
from planner.launch.wrappers.read_containers import SHELLS, apply_mounts, program_of
from planner.launch.wrappers.read_resources import (
    LauncherResources,
    launcher_resources,
    parse_hosts,
)


@record(kw_only=True)
class WrapperRule:
    """How to parse a wrapper: a row of ``programs.csv``, with several ``names``.

    ``valued``, ``flags``: its options with and without a value in the next word; ``takes``: how to
    read an option in neither. ``first``: words before its options, one of them required;
    ``num_positional`` words come before the command: a duration, an image. ``does``: the kind of
    its options (`planner.launch.wrappers.read_resources`); ``nothing`` if it starts no
    command.
    """

    does: str = ""
    first: tuple[str, ...] = ()
    valued: frozenset[str] = frozenset()
    flags: frozenset[str] = frozenset()
    takes: bool = False
    num_positional: int = 0
    two: frozenset[str] = frozenset()

    def wraps(self, words: Sequence[Word]) -> bool:
        """Whether a command with its name starts another."""
        return not self.first or (len(words) > 1 and words[1].text in self.first)

    @property
    def attached(self) -> tuple[str, ...]:
        """Short options whose value follows without a blank: ``-N4``."""
        if self.does == "slurm":
            return tuple(f"-{letter}" for letter in "NnpJowGtcACDdiewxLMqSTWmrBb")
        return ("-e",) if self.does == "container" else ()


def _program(row: Mapping[str, str]) -> WrapperRule:
    """Return the rule of a wrapper from a row of ``wrappers/programs.csv``."""
    words = {name: frozenset(row[name].split()) for name in ("flags", "valued", "two")}
    return WrapperRule(
        does=row["does"],
        first=tuple(row["first"].split()),
        num_positional=int(row["plain"] or 0),
        takes=bool(row["takes"]),
        **words,
    )


PROGRAMS = {
    name: _program(row)
    for row in shipped_rows("wrappers/programs.csv")
    for name in row["names"].split("|")
}
ACCELERATE = PROGRAMS.pop("accelerate launch")
"""Not by its name: its words stay."""


Options = list[tuple[str, Word | None]]


def parse_wrapper(program: WrapperRule, words: Sequence[Word]) -> tuple[Options, Sequence[Word]]:
    """Split a wrapper's command into its options with values, and the words of the inner command.

    The first word is the wrapper. For a container the inner words begin with its image.
    """
    options: Options = []
    index, positional_left, module = 1, program.num_positional, None
    while index < len(words):
        word = words[index]
        begins = word.text if word.text is not None else word.begins
        if word.text is None and not begins.startswith("-"):
            if positional_left == 0 and _is_program(program, words, index):
                break
            following = words[index + 1].text if index + 1 < len(words) else None
            if program.does == "remote" and following in program.flags | program.valued:
                index += 1  # options in a variable
                continue
            positional_left, index = max(positional_left - 1, 0), index + 1
            if program.num_positional and positional_left == 0:
                index -= program.does == "container"
                break
        elif begins == "--":
            index += 1
            break
        elif begins.startswith("-") and len(begins) > 1:
            consumed = _option(program, words, index, options)
            if begins in ("-m", "--module") and options[-1][1] is None:
                module = index
            index += consumed
        elif positional_left:
            positional_left, index = positional_left - 1, index + 1
            if positional_left == 0:
                index -= program.does == "container"
                break
        else:
            break
    rest = words[index:]
    return options, (words[module], *rest) if module is not None else rest


def _is_program(program: WrapperRule, words: Sequence[Word], index: int) -> bool:
    """True if an unknown word is taken as a program: an option or nothing follows.

    False if an option of the wrapper follows: the word may be a variable with more such options.
    """
    word = words[index]
    if word.pieces and not word.pieces[-1].unknown and "/" in word.pieces[-1].text:
        return True
    following = words[index + 1] if index + 1 < len(words) else None
    if following is not None and {following.text} & (program.flags | program.valued):
        return False
    return following is None or (following.begins or "").startswith("-")


def _option(program: WrapperRule, words: Sequence[Word], index: int, options: Options) -> int:
    """Append the option at ``index`` to ``options``; return the number of its words."""
    word = words[index]
    text = word.text if word.text is not None else word.begins
    name, equals, _ = text.partition("=")
    if equals and text.startswith("--"):
        options.append((name, word.after(len(name) + 1)))
        return 1
    default = f"--{text[2:].replace('-', '_')}" if text.startswith("--") else text
    if text in program.two:
        return 3
    if not text.startswith("--") and len(text) > 2 and text[:2] in program.attached:
        options.append((text[:2], word.after(3 if equals and text[2] == "=" else 2)))
        return 1
    joined = {f"-{letter}" for letter in text[1:]} if text[1:2] != "-" else {text}
    is_flag = bool({text, default} & program.flags) or joined <= program.flags  # -lu
    is_valued = bool({text, default} & program.valued) or (program.takes and not is_flag)
    value = words[index + 1] if index + 1 < len(words) else None
    if word.text is None or not is_valued or value is None:
        options.append((name, None))
        return 1
    is_named = bool({text, default} & program.valued)
    is_script = (value.text or "").endswith(".py") and not is_named
    if program.takes and ((value.begins or "").startswith("-") or is_script):
        options.append((name, None))
        return 1
    options.append((name, value))
    return 2


def script_in(
    word: Word,
    environment: Mapping[str, Word],
    outer: Script,
    arguments: Sequence[Word] | None = None,
) -> tuple[Command, ...]:
    """Return the commands in a word that a shell parses again; positions refer to ``outer``.

    ``arguments`` are those of the script in the word.
    Raises `LaunchError`: a quote in it is never closed.
    """
    name = f"{outer.name}:{word.line}, the script inside"
    return read_inner(_pieces(word), environment, outer.text, name, arguments).commands


def join_script(words: Sequence[Word]) -> Word:
    """Words joined to the text that ``eval`` parses."""
    pieces = (piece for word in words for piece in (*computed_text(" "), *_pieces(word)))
    return replace(words[0], pieces=tuple(pieces), span=None)


def script_of(
    document: HereDocument, environment: Mapping[str, Word], outer: Script
) -> tuple[Command, ...]:
    """Return the commands of a here-document that a shell reads; positions refer to ``outer``."""
    pieces: Pieces = (TextPiece(document.text, document.span.start, document.span.end),)
    if document.expanded:
        pieces = document.pieces
    name = f"{outer.name}:{document.line}, the script inside"
    return read_inner(pieces, environment, outer.text, name).commands


def _pieces(word: Word) -> Pieces:
    return word.pieces or computed_text(word.text or "")


SCRIPTS = (".sh", ".bash", ".slurm", ".sbatch")
"""What scripts of a shell end with."""
_PYTHON = re.compile(r"(?:python|pypy)(?:\d+(?:\.\d+)*)?")
_PYTHON_VALUED = ("-W", "-X")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=")
_MOST_NESTED = 6
_SCRIPTS = (".sh", ".bash")
_STARTING = ("slurm", "torchrun", "deepspeed", "mpi", "dashes", "remote")
_ACCELERATE_MODULE = "accelerate.commands.launch"


@record(kw_only=True)
class UnwrappedCommand:
    """A program with its words, the variables given to it, and the layers that start it.

    ``is_launched``: something around it may start it several times. ``by_python``: a script.
    """

    words: tuple[Word, ...]
    environment: Mapping[str, Word]
    layers: tuple[LauncherResources, ...]
    is_launched: bool = False
    by_python: bool = False


def unwrap(
    script: Script,
    words: Sequence[Word],
    environment: Mapping[str, Word],
    layers: tuple[LauncherResources, ...],
    depth: int = 0,
    *,
    is_launched: bool = False,
) -> Iterator[UnwrappedCommand]:
    """Yield the innermost command behind wrappers, or each command of a script inside.

    A command without wrapper is unchanged. ``layers`` are the resources of launchers around the
    command, outermost first.

    Raises LaunchError if scripts are nested too deeply, or a quote in them is never closed.
    """
    if depth > _MOST_NESTED:
        line = words[0].line if words else 0
        raise LaunchError(
            f"{script.name}:{line}: commands inside commands more than {_MOST_NESTED} deep are "
            "not read: give the inner one in a file of its own."
        )
    state = UnwrappedCommand(
        words=tuple(words), environment=environment, layers=layers, is_launched=is_launched
    )
    while state.words:
        start = next(
            (i for i, word in enumerate(state.words) if program_name(word).text is not None), None
        )
        if start is None:
            return
        if start:  # unset variables: a command may follow them
            state = replace(state, words=state.words[start:], is_launched=True)
        first = program_name(state.words[0])
        name = (first.text or "").rpartition("/")[2]
        state = replace(state, words=(first, *state.words[1:]))
        if name in PROGRAMS and PROGRAMS[name].does == "nothing":
            return
        elif name == "tmux":  # what it types into a session, or starts one with
            for word in state.words[2:]:
                if " " in "".join(piece.text for piece in word.pieces).strip():
                    inner = script_in(join_script([word]), state.environment, script)
                    yield from _unwrap_commands(script, state, inner, depth)
            return
        elif name == "eval" and len(state.words) > 1:
            text = join_script(state.words[1:])
            yield from _unwrap_commands(
                script, state, script_in(text, state.environment, script), depth
            )
            return
        elif name in SHELLS:
            yield from _shell(script, state, depth)
            return
        elif _PYTHON.fullmatch(name):
            state, is_program = _python(state)
            if is_program and (state.words[0].text or "").rpartition("/")[2] not in PROGRAMS:
                yield replace(state, by_python=True)
                return
        elif name in ("accelerate", "accelerate-launch"):
            yield _accelerate(state)
            return
        elif (program := PROGRAMS.get(name)) is not None and program.wraps(state.words):
            following = _unwrap_wrapper(script, state, program, depth)
            if not isinstance(following, UnwrappedCommand):
                yield from following
                return
            state = following
        elif name.endswith(_SCRIPTS):
            commands = _documents(script, state, state.words)
            yield from (
                (state,) if commands is None else _unwrap_commands(script, state, commands, depth)
            )
            return
        else:
            yield state
            return


def program_name(word: Word) -> Word:
    """Return a program whose folder is unknown by its name alone; other words unchanged."""
    if word.text is not None or not word.pieces:
        return word
    tail = ""
    for piece in reversed(word.pieces):
        if piece.unknown:
            break
        tail = piece.text + tail
    name = tail.rpartition("/")[2]
    return replace(word, text=name, span=None, unknown="") if "/" in tail and name else word


def _python(state: UnwrappedCommand) -> tuple[UnwrappedCommand, bool]:
    """Return the script or module that Python runs; False if it is a launcher or not readable."""
    words, index = state.words, 1
    while index < len(words):
        text = words[index].text
        if text == "-m" and index + 1 < len(words):
            module = words[index + 1].text or ""
            rest = words[index + 1 :]
            if module == _ACCELERATE_MODULE:
                return _accelerate(replace(state, words=rest)), True
            if wrapper := option_aliases("python module").get(module):
                first = replace(rest[0], text=wrapper, span=None)
                return replace(state, words=(first, *rest[1:])), False
            return replace(state, words=words[index:]), True
        if text == "-c":
            return replace(state, words=()), False
        if text is None or not text.startswith("-"):
            script = (program_name(words[index]), *words[index + 1 :])
            return replace(state, words=script), script[0].text is not None
        index += 2 if text in _PYTHON_VALUED else 1
    return replace(state, words=()), False


def _accelerate(state: UnwrappedCommand) -> UnwrappedCommand:
    """Return ``accelerate launch`` with all words, because its options also set the training.

    The nodes and GPUs in its options become a further layer of resources.
    """
    words = state.words
    if words[0].text != "accelerate":
        launch = [replace(words[0], text=text, span=None) for text in ("accelerate", "launch")]
        words = (*launch, *words[1:])
    if words[1:2] and words[1].text == "launch":
        options, _ = parse_wrapper(ACCELERATE, words[1:])
        layers = (*state.layers, launcher_resources("accelerate", options))
        return replace(state, words=words, layers=layers)
    return replace(state, words=words)


def _unwrap_wrapper(
    script: Script, state: UnwrappedCommand, program: WrapperRule, depth: int
) -> UnwrappedCommand | Iterator[UnwrappedCommand]:
    """Return the command behind a wrapper, or an iterator over the commands of its script."""
    words = state.words[1:] if program.first else state.words
    options, rest = parse_wrapper(program, words)
    environment = dict(state.environment)
    if program.does in ("container", "inside"):
        variables: dict[str, Word] = {}
        for name, word in options:
            if name in ("-e", "--env") and word is not None:
                _skip_assignments([word], variables)
        environment |= variables
        if program.does == "container":
            while _leads_to_image(rest):  # options in a variable that nothing sets
                more, rest = parse_wrapper(program, rest)
                options = [*options, *more]
            rest = _from_image(options, rest)
            volumes = [
                "".join(piece.text for piece in word.pieces if not piece.unknown)
                for name, word in options
                if word and name in _VOLUMES
            ]
            mounts = [
                (part[1], part[0]) for part in (text.split(":") for text in volumes) if part[1:]
            ]
            mounted = ((word, apply_mounts(word.pieces, mounts)) for word in rest)
            rest = [
                word if pieces == word.pieces else Word.of(pieces, word.line, word.raw)
                for word, pieces in mounted
            ]
    if program.does == "env":
        rest = _skip_assignments(rest, environment)
    if program.does == "dashes":
        rest = next((words[i + 1 :] for i, word in enumerate(words) if word.text == "--"), ())
    layers = (*state.layers, *_hosts(script, program, options))
    if (layer := launcher_resources(program.does, options)).fields or layer.gpu:
        layers = (*layers, layer)
    inside = replace(
        state,
        words=tuple(rest),
        environment=environment,
        layers=layers,
        is_launched=state.is_launched or program.does in _STARTING,
    )
    if program.does == "remote" and (text := _remote_text(rest)) is not None:
        return _unwrap_commands(script, inside, script_in(text, environment, script), depth)
    can_read_document = program.does in ("slurm", "remote") and len(rest) <= 1
    if can_read_document and (commands := _documents(script, state, rest)) is not None:
        return _unwrap_commands(script, inside, commands, depth)
    return inside


def _remote_text(rest: Sequence[Word]) -> Word | None:
    """Return the text that the shell of a host parses, behind the host and unknown options."""
    if not rest or not all(word.text is None or "@" in word.text for word in rest[:-1]):
        return None
    return rest[-1] if any(re.search(r"\s", piece.text) for piece in _pieces(rest[-1])) else None


def _hosts(
    script: Script, program: WrapperRule, options: Sequence[tuple[str, Word | None]]
) -> Iterator[LauncherResources]:
    """Yield nodes and GPUs from a launcher's host list, or from a host file in the script."""
    for name, word in options:
        if word is None or word.text is None or program.does not in ("deepspeed", "mpi"):
            continue
        if name.lstrip("-") in ("hostfile", "machinefile", "f") or (
            name == "-H" and program.does == "deepspeed"
        ):
            file_name = word.text.removeprefix("./")
            if (
                host_file := script.files.get(file_name) or script.files.get(word.text)
            ) is not None:
                yield parse_hosts(program.does, name, word, host_file)
        elif name in ("-H", "--host", "-host", "-hosts"):
            yield parse_hosts(program.does, name, word, None)


def _shell(script: Script, state: UnwrappedCommand, depth: int) -> Iterator[UnwrappedCommand]:
    """Yield the commands of ``bash -c TEXT``, or of a here-document that a shell reads."""
    rest, is_text = list(state.words[1:]), False
    while rest and (rest[0].text or "").startswith(("-", "+")):
        text = rest.pop(0).text or ""
        is_text = is_text or ("c" in text and not text.startswith("--"))
        if text in ("-o", "+o", "-O", "+O", "--rcfile", "--init-file"):
            del rest[:1]
    commands: Sequence[Command] | None
    if is_text:
        arguments = rest[2:] or None  # the word before them is the script's name
        commands = script_in(rest[0], state.environment, script, arguments) if rest else ()
    else:
        commands = _documents(script, state, rest)
    if commands is not None:
        yield from _unwrap_commands(script, state, commands, depth)
    elif rest and (rest[0].text or "").endswith(SCRIPTS):
        yield replace(state, words=tuple(rest))
    elif rest and rest[0].pieces and (end := rest[0].pieces[-1].text or "").endswith(SCRIPTS):
        # in a folder that is not known
        word = Word.of(computed_text(end.lstrip("/")), rest[0].line, end.lstrip("/"))
        yield replace(state, words=(word, *rest[1:]))


def _unwrap_commands(
    script: Script, state: UnwrappedCommand, commands: Sequence[Command], depth: int
) -> Iterator[UnwrappedCommand]:
    """Unwrap commands inside ``state``, with its environment and launchers; yield the results."""
    for command in commands:
        environment = {**state.environment, **command.environment}
        yield from unwrap(
            script,
            command.words,
            environment,
            state.layers,
            depth + 1,
            is_launched=state.is_launched,
        )


def _documents(
    script: Script, state: UnwrappedCommand, rest: Sequence[Word]
) -> Sequence[Command] | None:
    """Return the commands of a here-document that a shell reads, by name or as input; else None."""
    name = rest[0].text if rest else None
    if name is not None:
        for file_name, document in script.files.items():
            # A file of a ConfigMap is mounted in some folder.
            if file_name in (name, name.removeprefix("./"), name.rpartition("/")[2]):
                return script_of(document, state.environment, script)
        return None
    first, last = state.words[0].line, state.words[-1].line + 1
    for file_name, document in script.files.items():
        if file_name.startswith("<<") and first <= document.line <= last + 1:
            return script_of(document, state.environment, script)
    return None


_VOLUMES = ("-v", "--volume")


def _skip_assignments(rest: Sequence[Word], environment: dict[str, Word]) -> Sequence[Word]:
    """Return the words after ``NAME=value`` words; add these to ``environment``."""
    index = 0
    while index < len(rest) and (match := _ASSIGNMENT.match(rest[index].begins or "")):
        environment[match[1]] = rest[index].after(match.end())
        index += 1
    return rest[index:]


def _leads_to_image(words: Sequence[Word]) -> bool:
    """True if the first word of a container is unknown and a later word is a known image."""
    if not words or words[0].text is not None or words[0].begins:
        return False
    return any(
        image in (word.text or "") for word in words[1:] for image in option_aliases("image")
    )


def _from_image(options: Sequence[tuple[str, Word | None]], rest: Sequence[Word]) -> Sequence[Word]:
    """Return a container's command after its image, with the entry point or the image's program."""
    if not rest:
        return ()
    image, words = rest[0], rest[1:]
    for name, word in options:
        if name == "--entrypoint" and word is not None and word.text:
            return (word, *words)
    gpus = launcher_resources("container", options).fields.get("gpus_per_node")
    return program_of(image.text or image.raw, words, image.line, gpus)

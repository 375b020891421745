"""From a user's launch file to what it means; nothing of it is ever run."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from itertools import takewhile
from pathlib import Path

from planner.base import reading
from planner.documents.python import Call, calls_of, cells_of, program_and_shell
from planner.documents.shell import HereDocument, Script, Word
from planner.documents.shell.text import LARGEST, Given, Span, stated
from planner.documents.shell.values import computed
from planner.documents.tree import Tree, flattened, plain_text, read_trees
from planner.errors import LaunchError, PlannerError
from planner.launch.imported import Imported, imported
from planner.launch.launchers import Inner, given_by, inner_commands, read_script
from planner.launch.launchers.containers import config_maps, containers_of, script_of
from planner.launch.option_table import Accepted, AcceptedOption
from planner.launch.programs import found_in, nothing_called
from planner.launch.target import Target
from planner.launch.targets import readers, targets
from planner.launch.understood import REPLICAS, Found, World, number_of
from planner.specs.quantization import checkpoint_of

_NUMBER = re.compile(r"-\.?\d")
_OVERRIDE = re.compile(r"[+~]{0,2}([A-Za-z_][\w./-]*)=")
_MANY = ("*", "+")
_SURE = ("", "1")
_SCRIPT = ".py"
# Blanks, a continued line and its indent stand between words in a row; more stands elsewhere.
_WIDEST_GAP = 400


@dataclass(kw_only=True)
class Arguments:
    """Options by the name of the parser; those it does not know; the other words.

    ``repeated`` are options that a later one of the same name replaced, ``untold`` words of
    which text alone does not tell what they add.
    """

    options: dict[str, Given] = field(default_factory=dict)
    unknown: list[Given] = field(default_factory=list)
    positional: list[Given] = field(default_factory=list)
    repeated: list[Given] = field(default_factory=list)
    untold: list[Given] = field(default_factory=list)

    def add(self, given: Given) -> None:
        """Take in an option; the last one of a name counts."""
        if given.option in self.options:
            self.repeated.append(self.options[given.option])
        self.options[given.option] = given


def read_arguments(words: Sequence[Word], accepted: Accepted) -> Arguments:
    """The options in the words behind a program; ``key=value`` words are options, too."""
    found, place = Arguments(), 0
    while place < len(words):
        word = words[place]
        place += 1
        name, equals, _ = word.begins.partition("=")
        if _is_option(word):
            option = accepted.find(name)
            rest = [word.after(len(name) + 1)] if equals else []
            if not equals:
                rest = _values(words, place, option, accepted)
                place += len(rest)
            given = _given(option.name if option else name, word, rest)
            if option is None:
                found.unknown.append(given)
            else:
                found.add(given)
        elif key := _OVERRIDE.match(word.begins):
            option = accepted.find(key[1])
            given = _given(option.name if option else key[1], word, [word.after(key.end())])
            (found.add if option else found.unknown.append)(given)
        elif word.text is None and not word.begins:
            found.untold.append(_given(word.raw, word, [word]))
        else:
            found.positional.append(_given("", word, [word]))
    return found


def _is_option(word: Word) -> bool:
    return word.begins.startswith("-") and len(word.begins) > 1 and not _NUMBER.match(word.begins)


def _values(
    words: Sequence[Word], place: int, option: AcceptedOption | None, accepted: Accepted
) -> list[Word]:
    """The words from a place on that are values of an option: never an option that is known."""
    following = list(
        takewhile(lambda word: not _is_option(word) and word.begins != "--", words[place:])
    )
    nargs = "?" if option is None else option.nargs
    if nargs in _MANY:
        return following
    if nargs in _SURE:
        if not following and any(accepted.find(word.begins) for word in words[place : place + 1]):
            return []
        return list(words[place : place + 1])
    if nargs == "?" and following and following[0].begins.endswith(_SCRIPT):
        return []
    if nargs == "?":
        return following[:1]
    return following[: int(nargs)] if nargs.isdigit() else following[:1]


def _given(name: str, word: Word, values: Sequence[Word]) -> Given:
    unknown = "; ".join(dict.fromkeys(value.unknown for value in values if value.unknown))
    return Given(
        option=name,
        texts=tuple(value.text or _model_in(name, value) for value in values),
        line=word.line,
        spans=tuple(value.span for value in values),
        whole=_whole([word, *values]),
        unknown=unknown,
    )


def _model_in(option: str, word: Word) -> str | None:
    """The model at the end of a path whose folder text alone does not tell: ``$HOME/llama-7b``."""
    _, slash, name = _told(word).rpartition("/")
    is_known = bool(slash and word.pieces and not word.pieces[-1].unknown)
    is_model = is_known and "model" in option.lower() and checkpoint_of(name).model is not None
    return name if is_model else word.text


def _whole(words: Sequence[Word]) -> Span | None:
    """The words where they stand in a row: on the command's line, in an array, in a string."""
    if len(words) > 1 and words[1].raw == words[0].raw and words[1].regions == words[0].regions:
        # --option=value is one word.
        words = words[:1]
    best: tuple[int, Span] | None = None
    for first in words[0].regions:
        gaps, end = 0, first.end
        for word in words[1:]:
            behind = [place for place in word.regions if place.start >= end]
            if not behind:
                break
            place = min(behind)
            gaps, end = gaps + place.start - end, place.end
        else:
            if gaps <= _WIDEST_GAP and (best is None or gaps < best[0]):
                best = gaps, Span(first.start, end)
    return best[1] if best else None


_MOST_NAMED = 5
# All but one of so many options of a list must be known.
_MOST_OF = 4
_DOCUMENTS = (".yaml", ".yml", ".json", ".toml")
_YAML = (".yaml", ".yml")
_PROSE = (".md", ".rst", ".markdown")
_PROGRAM, _NOTEBOOK, _PAGE = ".py", ".ipynb", ".html"
_FENCED = re.compile(
    r"^ *(?P<fence>```+|~~~+) *(?P<language>[\w+-]*)[^\n]*\n(?P<body>.*?)^ *(?P=fence)",
    re.MULTILINE | re.DOTALL,
)
_DIRECTIVE = re.compile(
    r"^\.\. code(?:-block)?:: *(?P<language>[\w+-]*)[^\n]*\n(?P<body>(?: *\n|[ \t]+[^\n]*\n)+)",
    re.MULTILINE,
)
_OF_FOLDERS = (".sh", ".bash", ".slurm", ".sbatch", *_DOCUMENTS)
_HEAD = re.compile(r'(?:[ \t]*(?:#[^\n]*)?\n)*[rR]?"""(?P<body>.*?)"""', re.DOTALL)
_PROMPT = re.compile(r"^( *)[$#>] (?=\S)", re.MULTILINE)
_OF_SHELLS = ("", "bash", "sh", "shell", "console", "shell-session", "zsh", "text")
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
    if path.suffix.lower() in _YAML:
        yield from _of_containers(path, text)
    if is_document(path):
        alone = Script(
            name=path.name, text=text, commands=(), variables={}, directives=(), files={}
        )
        for found in _trees(path, text):
            if found.target:
                yield replace(found, files=_files(path, alone, found.options.values()))
        return
    if path.suffix.lower() in _PROSE:
        yield from _of_prose(path, text)
        return
    if path.suffix.lower() in (_PROGRAM, _NOTEBOOK):
        yield from _of_program(path, text)
        return
    if path.suffix.lower() == _PAGE:
        raise LaunchError(
            f"{path}: is a page: put the command that it shows into a file of its own, such as "
            "run.sh."
        )
    yield from _of_script(path, text)


def _of_script(path: Path, text: str) -> Iterator[Found]:
    script = read_script(text, {}, path.name)
    if text.lstrip().startswith("-"):
        yield from _of_arguments(path, script)
        return
    for inner in inner_commands(script):
        target = started(inner.words)
        if target is not None:
            inner.require_agreement(path.name)
            yield of_command(path, script, inner, target)


def _of_prose(path: Path, text: str) -> Iterator[Found]:
    """What the blocks of code in a text for people start; blocks that are none are passed over."""
    for block in (*_FENCED.finditer(text), *_DIRECTIVE.finditer(text)):
        language, body = block["language"].lower(), block["body"]
        if language in _OF_SHELLS:
            read, code = _of_script, _PROMPT.sub(r"\1  ", body)
        elif f".{language}" in _YAML:
            read, code = _of_yaml, body
        else:
            continue
        # Places in the code are those in the text.
        blank = re.sub(r"[^\n]", " ", text[: block.start("body")])
        try:
            found = [*read(path, blank + code)]
        except LaunchError:
            continue
        yield from (replace(one, text=text) for one in found)


def _of_program(path: Path, text: str) -> Iterator[Found]:
    """What the calls of a program start, and the commands in a notebook's cells."""
    calls, code, shell = _called(path, text)
    none = Script(name=path.name, text=code, commands=(), variables={}, directives=(), files={})
    shown = [*_of_docstring(path, text)] if path.suffix.lower() == _PROGRAM else []
    try:
        own = [*found_in(calls, code, path.name)]
    except LaunchError:  # it takes its options from the command that its own text may show
        if not shown:
            raise
        own = []
    for found in own:
        beside = _files(path, none, found.options.values())
        yield replace(found, files={**beside, **found.files})
    yield from () if own else shown
    if shell.strip():
        yield from (replace(found, text=code) for found in _of_script(path, shell))


def _of_docstring(path: Path, text: str) -> Iterator[Found]:
    """What the commands start that a program shows at its head, as those of TRL do."""
    if (head := _HEAD.match(text)) is not None:
        shown = re.sub(r"[^\n]", " ", text[: head.start("body")]) + head["body"]
        found = [*_of_prose(path, shown)]
        if not found:
            with suppress(LaunchError):  # prose that no shell reads
                found = [*_of_script(path, shown)]
        yield from (replace(one, text=text) for one in found)


def _called(path: Path, text: str) -> tuple[tuple[Call, ...], str, str]:
    """The calls of a program, its text, and what of it is for a shell."""
    if path.suffix.lower() == _PROGRAM:
        return calls_of(text, path.name), text, ""
    code, shell = program_and_shell([*cells_of(text, path.name)])
    lines = zip(code.split("\n"), shell.split("\n"), strict=True)
    whole = "\n".join(own or other for own, other in lines)  # versions stand in both
    return calls_of(code, path.name), whole, shell


def _of_yaml(path: Path, text: str) -> Iterator[Found]:
    yield from _of_containers(path, text)
    yield from (found for found in _trees(path, text) if found.target)


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
    return next((one for one in readers().values() if one.starts(texts)), None)


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
    parts = Path(name).parts  # a folder may be mounted elsewhere than it stands here
    ends = [Path(*parts[start:]) for start in range(1, len(parts))]
    for place in (path.parent / name, *(path.parent / end for end in ends)):
        try:
            text = reading.read_text(place, LARGEST, _Unread)
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
                words = list(inner.words)
                if container.role and not any(word.begins in _POOL_OPTIONS for word in words):
                    told = (_POOL_OPTIONS[0], container.role)  # by the container alone
                    words += [Word.of(computed(one), container.line, one) for one in told]
                placed = replace(
                    inner,
                    words=tuple(words),
                    world=_within(inner.world, container.world, path.name),
                )
                yield of_command(path, script, placed, target)


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


def nothing_found(path: Path, text: str) -> str:
    """What a file without a launch does, as far as that helps."""
    known = ", ".join(readers())
    if path.suffix.lower() in _PROSE:
        return f"{path}: none of its blocks of code starts something that planner knows: {known}."
    if path.suffix.lower() in (_PROGRAM, _NOTEBOOK):
        return nothing_called(path, _called(path, text)[0])
    if path.suffix.lower() in _DOCUMENTS:
        return f"{path}: is no document of a tool that planner knows. It knows: {known}."
    programs = dict.fromkeys(
        next((told for told in map(_told, inner.words[:2]) if not told.startswith("-")), "")
        for inner in inner_commands(read_script(text, {}, path.name))
        if _told(inner.words[0]) not in _PLUMBING
    )
    names = [name for name in programs if name][:_MOST_NAMED]
    does = f"it runs {', '.join(names)}" if names else "it runs no program"
    return f"{path}: starts nothing that planner knows: {does}. It knows: {known}."


_NODE_RANK = "--node-rank"
_OF_POOLS = "prefill_"


def read_launch(
    path: Path,
    number: int | None = None,
    specs: Path | None = None,
    *,
    num_gpus: str | None = None,
    gpu: str | None = None,
    text: str | None = None,
) -> Imported:
    """The launch in a file or a folder; of several the one of this ``number``, counted from 1.

    Without a number the first that tells its model, with a note of the others.

    ``num_gpus`` and ``gpu`` are those on which the user starts it, whatever the file says;
    ``text`` is read in place of that of the file.

    Raises
    ------
    LaunchError
        It cannot be read, starts nothing that planner knows, or less than ``number`` things.
    """
    started = _of_folder(path) if os.path.isdir(path) else _of_file(path, text)
    found: list[Imported] = []
    errors: list[PlannerError] = []
    for file, one in started:
        try:
            found.append(imported(file, readers()[one.target], _on(one, num_gpus, gpu), specs))
        except PlannerError as error:  # of several things some may be for people alone
            errors.append(error)
    if not found:
        raise errors[0]
    several = _joined(_distinct(found))
    if number is None:
        known = next((one for one in several if "model" in one.values), several[0])
        return _noted(_complete(known), several)
    if not 1 <= number <= len(several):
        listed = "".join(f"\n  {words}" for words in _places(several))
        raise LaunchError(f"{path}: starts {len(several)} things, not {number}:{listed}")
    return _complete(several[number - 1])


def _of_file(path: Path, text: str | None) -> list[tuple[Path, Found]]:
    text = text or text_of(path)
    found = [(path, one) for one in launches(path, text)]
    if not found:
        raise LaunchError(nothing_found(path, text))
    return found


def _of_folder(folder: Path) -> list[tuple[Path, Found]]:
    """What the files of a folder start, without those that the commands of others read."""
    found: list[tuple[Path, Found]] = []
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() not in _OF_FOLDERS or not path.is_file():
            continue
        try:
            found += _of_file(path, None)
        except LaunchError:
            continue
    read = {Path(name).name for _, one in found for name in one.files}
    found = [(path, one) for path, one in found if path.name not in read]
    if not found:
        raise LaunchError(f"{folder}: none of its files starts something that planner knows.")
    return found


def _places(several: Sequence[Imported]) -> list[str]:
    return [
        f"--row {number} is {one.target.title}, line {one.found.line} of {one.path.name}"
        + (f", {one.values['model']}" if "model" in one.values else "")
        for number, one in enumerate(several, start=1)
    ]


def _noted(one: Imported, several: Sequence[Imported]) -> Imported:
    """The launch with a note of what else its file starts."""
    if len(several) == 1:
        return one
    others = "; ".join(_places(several)[:_MOST_NAMED])
    note = f"The file starts {len(several)} different things, of which this is one: {others}."
    return replace(one, notes=(*one.notes, note))


def _complete(one: Imported) -> Imported:
    """The launch, unless it starts one of two kinds of workers alone."""
    kinds = {name for name in REPLICAS if name in one.values}
    if one.values.get("mode") == "disaggregated" and len(kinds) == 1:
        words = "decode" if REPLICAS[0] in kinds else "prefill"
        raise LaunchError(
            f"{one.path}: starts the {words} workers of a disaggregated deployment alone: give "
            "a file that starts both, or the directory of a launch of planner."
        )
    return one


def _on(found: Found, num_gpus: str | None, gpu: str | None) -> Found:
    """The launch on so many GPUs of this kind, where the user says which."""
    world = found.world
    if num_gpus is not None:
        world = World(num_gpus=stated("num_gpus", num_gpus, 0), gpu=world.gpu)
    return replace(found, world=world if gpu is None else replace(world, gpu=gpu))


def text_of(path: Path) -> str:
    """The text of a launch file. Raises `LaunchError` where it is none, or too long."""
    return reading.read_text(path, LARGEST, LaunchError)


def _distinct(found: Sequence[Imported]) -> list[tuple[Imported, int]]:
    """Those that mean different things, each with how many mean it: one for each node, copies."""
    kept: list[tuple[Imported, int]] = []
    for one in found:
        same = next(
            (
                at
                for at, (other, _) in enumerate(kept)
                if one.target is other.target and one.values == other.values
            ),
            None,
        )
        if same is None:
            kept.append((one, 1))
            continue
        rank = one.found.options.get(_NODE_RANK)
        if rank is None or rank.texts in (("0",), (None,)):
            kept[same] = (kept[same][0], kept[same][1] + 1)
        # else it is of a later node of a server that another command leads
    return kept


def _joined(found: Sequence[tuple[Imported, int]]) -> list[Imported]:
    """Prefill and decode workers of one deployment as one launch."""
    prefill = [(one, n) for one, n in found if REPLICAS[1] in one.values]
    decode = [(one, n) for one, n in found if REPLICAS[0] in one.values]
    if len(prefill) != 1 or len(decode) != 1 or prefill == decode:
        return [one for one, _ in found]
    (first, num_first), (second, num_second) = prefill[0], decode[0]
    own = {name: v for name, v in first.values.items() if name.startswith(_OF_POOLS)}
    values = {**second.values, **own, "mode": "disaggregated"}
    values["prefill_replicas"] = num_first * int(first.values["prefill_replicas"])
    values["replicas"] = num_second * int(second.values["replicas"])
    each = [int(one.values.get("num_gpus") or 0) for one in (first, second)]
    if all(each):
        values["num_gpus"] = num_first * each[0] + num_second * each[1]
    every = dict.fromkeys((*first.lines, *second.lines))
    lines = tuple(sorted(every, key=lambda line: (line.line, line.option)))
    joined = replace(
        second,
        values=values,
        lines=lines,
        notes=tuple(dict.fromkeys((*first.notes, *second.notes))),
    )
    others = [one for one, _ in found if one not in (first, second)]
    return [joined, *others]

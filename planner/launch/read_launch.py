"""From a user's launch file to what it means; nothing of it is ever run."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path

from planner.base import read_files
from planner.documents.code_blocks import blocks_of, without_prompts
from planner.documents.python_calls import Call, cells_of, parse_calls, program_and_shell
from planner.documents.shell import Script, Word
from planner.documents.shell.edits import LARGEST, ParsedOption, implied_option
from planner.documents.shell.syntax import computed_text
from planner.errors import LaunchError, PlannerError
from planner.launch.benchmark import (
    REQUESTS,
    accepted_by,
    client_only_note,
    client_program,
    is_of_clients,
    requests_of,
    servers_with_load,
)
from planner.launch.helm_charts import (
    RENDER_IT,
    chart_around,
    configs_of,
    helm_install,
    is_template,
    kubectl_apply,
    read_chart,
    values_options,
    without_places,
)
from planner.launch.import_launch import (
    ImportedLaunch,
    import_launch,
    merge_pools,
    pair_pools,
    unique_launches,
)
from planner.launch.launchers import StartedProgram, inner_commands, option_of_value, read_script
from planner.launch.launchers.containers import config_maps, containers_of, script_of
from planner.launch.launchers.serving_recipes import (
    entry_of,
    served_by_properties,
    served_by_triton,
    started_by_unit,
    unsupported_server,
    with_arguments,
)
from planner.launch.launchers.task_yaml import tasks_of
from planner.launch.launchers.unwrap import SCRIPTS
from planner.launch.option_table import ParserOptions
from planner.launch.parse_arguments import (
    command_texts,
    known_part,
    parse_documents,
    parse_here_document,
    read_arguments,
)
from planner.launch.parsed_launch import (
    MOST_ABOVE,
    REPLICAS,
    JobResources,
    ParsedCommand,
    parse_int,
)
from planner.launch.python_programs import (
    commands_of,
    explain_no_calls,
    modal_concurrency,
    program_resources,
    served_by_ray,
    servers_of_program,
    with_function,
)
from planner.launch.removed import name_removed_program, refuse_removed_name
from planner.launch.target import LaunchTarget
from planner.launch.targets import readers, targets
from planner.launch.targets.ollama import modelfile_of, with_models
from planner.question.terms import terms_about
from planner.specs.file_cache import snapshot_files

_MOST_NAMED = 5
_DEEPEST = 3
# All but one of so many options of a list must be known.
_MOST_OF = 4
_FOLDERS = 3
_DOCUMENTS = (".yaml", ".yml", ".json", ".toml")
_YAML = (".yaml", ".yml")
_JSON_TOO = ".conf"
"""Configurations of DeepSpeed may have this suffix, as files of other kinds do."""
PROSE = (".md", ".rst", ".markdown")
"""Texts for people, whose blocks of code are read."""
_OF_TRAINER = ("transformers", "deepspeed", "accelerate")
_PROGRAM, _NOTEBOOK, _PAGE, _TRITON = ".py", ".ipynb", ".html", ".pbtxt"
# Files that say in words of their own which command they start.
_OTHER_FORMATS = {
    ".properties": served_by_properties, ".service": started_by_unit, _TRITON: served_by_triton,
}  # fmt: skip
_OF_FOLDERS = (".sh", ".bash", ".slurm", ".sbatch", *_DOCUMENTS)
_HEAD = re.compile(r'(?:[ \t]*(?:#[^\n]*)?\n)*[rR]?"""(?P<body>.*?)"""', re.DOTALL)
_OF_PYTHON = ("python", "py", "python3")
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

_DESCRIBE = "Describe the run with --model, --framework or --engine, and --set, not with --from."


class _MissingFile(LaunchError):
    """A file that an option names and that is not here, or is not read."""


def is_document(path: Path) -> bool:
    """Whether a file is YAML, JSON or TOML, not a script."""
    return path.suffix.lower() in _DOCUMENTS


def parse_launches(path: Path, text: str) -> Iterator[ParsedCommand]:
    """What a file starts, in order; files that its commands name are read beside it.

    Raises `LaunchError`: it cannot be read, or its scheduler and its launcher contradict each
    other.
    """
    found = with_models([*_all_of(path, text)])
    sent = [one for one in found if one.target == REQUESTS]
    if sent and len(sent) == len(found):
        raise LaunchError(client_only_note(sent[0]))
    folders = path.absolute().parts[-_FOLDERS - 1 : -1]
    yield from (replace(one, search_folders=folders) for one in servers_with_load(found))


def _all_of(path: Path, text: str) -> Iterator[ParsedCommand]:
    """What a file starts, and the requests that it sends."""
    if path.suffix.lower() in _YAML:
        yield from _of_containers(path, text)
    if is_document(path):
        script = _no_script(path, text)
        for found in parse_documents(path, text):
            if found.target:
                yield replace(found, files=_files(path, script, found.options.values()))
        return
    if path.suffix.lower() in PROSE:
        yield from _of_prose(path, text)
        return
    if path.suffix.lower() in (_PROGRAM, _NOTEBOOK):
        yield from _of_program(path, text)
        return
    options = path.parent / "1" / "model.json"
    if path.suffix.lower() == _TRITON and options.is_file():  # of its backend for vLLM
        yield from (replace(found, path=options) for found in _all_of(options, text_of(options)))
        return
    if (started_by := _OTHER_FORMATS.get(path.suffix.lower())) is not None:
        for found in _of_script(path, started_by(text)):
            yield replace(found, text=text, options=without_places(found.options))
        return
    if path.suffix.lower() == _PAGE:
        raise LaunchError(
            f"{path}: is a document: put the command that it shows into its own file, such as "
            "run.sh."
        )
    yield from _of_script(path, text)


def _no_script(path: Path, text: str) -> Script:
    return Script(name=path.name, text=text, commands=(), variables={}, directives=(), files={})


def _of_script(
    path: Path, text: str, given: Mapping[str, str] | None = None, depth: int = 0
) -> Iterator[ParsedCommand]:
    """What a script starts, with ``given`` in its environment, and those that it starts beside."""
    if (modelfile := modelfile_of(text, path.name)) is not None:
        yield modelfile
        return
    entry = entry_of(path, text)
    environment = {} if entry is None else entry.environment
    script = read_script(text, {**environment, **(given or {})}, path.name)
    if text.lstrip().startswith("-"):
        yield from _of_arguments(path, script)
        return
    chart_errors: list[LaunchError] = []
    own = [*_of_commands(path, script, depth, chart_errors)]
    if chart_errors and not own:
        raise chart_errors[0]
    if entry is None:
        yield from own
    elif any(one.target != REQUESTS for one in own):
        yield from (replace(one, notes=(entry.note,)) for one in own)
    else:  # what it starts stands elsewhere: the entry says how many of what
        for one in _of_yaml(entry.file, entry.text):
            yield replace(one, path=entry.file)


def _of_commands(
    path: Path, script: Script, depth: int, chart_errors: list[LaunchError]
) -> Iterator[ParsedCommand]:
    """What the commands of a script start; errors of charts that it installs are collected."""
    for inner in inner_commands(script):
        yield from _requests(path, script, inner)
        if (removed := _removed_program(path, script, inner)) is not None:
            yield removed
            continue
        target = target_of_command(inner.words)
        if target is None and (beside := _sibling_program(path, inner.words, SCRIPTS)) is not None:
            yield from _parse_sibling_script(path, script, inner, beside, depth)
            continue
        if target is None:
            yield from _of_started(path, script, inner, None)
            try:
                for place, one in helm_install(path, inner.words, _of_yaml):
                    yield replace(one, path=place, name=place.name)
            except LaunchError as error:  # another command of the script may start something
                chart_errors.append(error)
            for place, one in kubectl_apply(path, inner.words, script, _of_yaml):
                options = without_places(one.options) if place == path else one.options
                yield replace(one, path=place, name=place.name, options=options)
            continue
        inner.require_agreement(path.name)
        command = parse_command(path, script, inner, target)
        if target.name == "torchtitan":
            command = with_function(command, path.parent)
        if target.name not in _OF_TRAINER or _names_model(command):
            yield command
        else:
            yield from _of_started(path, script, inner, command)


def _names_model(command: ParsedCommand) -> bool:
    named = {name.lstrip("-").partition(".")[0] for name in (*command.options, *command.files)}
    return bool(named & {"model_name_or_path", "model", "config_file"}) or any(
        "model_name_or_path" in file.options for file in command.files.values()
    )


def _of_started(
    path: Path, script: Script, inner: StartedProgram, command: ParsedCommand | None
) -> Iterator[ParsedCommand]:
    """What a program says that a command starts and that stands beside, and the command itself."""
    words = read_arguments(inner.words, ParserOptions({}, {}))
    given = {one.option.lstrip("-").replace("-", "_"): one for one in words.unknown}
    told = {name: one.single or "true" for name, one in given.items() if None not in one.texts}
    found: list[ParsedCommand] = []
    if (program := _sibling_program(path, inner.words, (_PROGRAM,))) is not None:
        place, text = program
        with suppress(LaunchError):
            found = [*servers_of_program(parse_calls(text, place.name, told), text, place.name)]
    for one in found:
        if "deepspeed" in given:
            one = replace(one, options={"--deepspeed": given["deepspeed"], **one.options})
        files = {**_files(path, script, one.options.values()), **one.files}
        here = replace(one, name=path.name, text=script.text, line=inner.line, files=files)
        if command is None:
            yield replace(here, resources=_within(inner.world, one.resources, path.name))
        else:
            yield replace(
                command,
                options={**one.options, **command.options},
                files={**files, **command.files},
                positional=(*command.positional, *one.positional),
                unknown=one.unknown,
            )
    if command is not None and not found:
        yield command


def _requests(path: Path, script: Script, inner: StartedProgram) -> Iterator[ParsedCommand]:
    """What a command sends to a server, or to the engine that it starts."""
    if name := client_program([known_part(word) for word in inner.words]):
        options = read_arguments(inner.words, accepted_by(name)).options
        found = ParsedCommand(
            target="", name=path.name, text=script.text, line=inner.line, options=options
        )
        yield requests_of(name, found)


def _parse_sibling_script(
    path: Path, script: Script, inner: StartedProgram, beside: tuple[Path, str], depth: int
) -> Iterator[ParsedCommand]:
    """What a script starts that another starts and that stands beside, where that can be read."""
    place, text = beside
    if depth >= _DEEPEST or place.samefile(path):
        return
    at = next((n for n, word in enumerate(inner.words) if (word.text or "").endswith(SCRIPTS)), 0)
    arguments = {str(number): word for number, word in enumerate(inner.words[at:]) if number}
    words = {**inner.environment, **arguments}
    told = {name: word.text for name, word in words.items() if word.text is not None}
    with suppress(LaunchError):
        for found in [*_of_script(place, text, told, depth + 1)]:
            yield replace(
                found,
                name=path.name,
                text=script.text,
                line=inner.line,
                options=without_places(found.options),
                resources=_within(found.resources, inner.world, path.name),
            )


def _sibling_program(
    path: Path, words: Sequence[Word], endings: tuple[str, ...]
) -> tuple[Path, str] | None:
    """The program that a command starts and that stands beside, with its text."""
    named = next((word.text for word in words if (word.text or "").endswith(endings)), None)
    for place in (path.parent / named, path.parent / Path(named).name) if named else ():
        with suppress(_MissingFile):
            return place, read_files.read_text(place, LARGEST, _MissingFile)
    return None


def _of_prose(path: Path, text: str) -> Iterator[ParsedCommand]:
    """What the blocks of code in a text for people start; blocks that are none are passed over.

    Programs among them count where no command does.
    """
    found = [*_of_blocks(path, text, (*_OF_SHELLS, *(one.lstrip(".") for one in _YAML)))]
    yield from found or _of_blocks(path, text, _OF_PYTHON)


def _of_blocks(path: Path, text: str, languages: Sequence[str]) -> Iterator[ParsedCommand]:
    for language, code in blocks_of(text, languages):
        read: Callable[[Path, str], Iterator[ParsedCommand]]
        read = _of_calls if language in _OF_PYTHON else _of_yaml
        if language in _OF_SHELLS:
            read, code = _of_script, without_prompts(code)
        try:
            found = [*read(path, code)]
        except LaunchError:
            continue
        yield from (replace(one, text=text) if one.path is None else one for one in found)


def _of_calls(path: Path, text: str) -> Iterator[ParsedCommand]:
    """What the calls of Python in a text for people start."""
    yield from servers_of_program(parse_calls(text, path.name), text, path.name)


def _of_program(path: Path, text: str) -> Iterator[ParsedCommand]:
    """What the calls of a program start, and the commands in a notebook's cells."""
    calls, code, shell = _called(path, text)
    for call in calls:
        if name := name_removed_program(call=call.name):
            yield ParsedCommand(target=name, name=path.name, text=code, line=call.line)
            return
    none = _no_script(path, code)
    around = program_resources(calls)
    shown = [*_of_docstring(path, text)] if path.suffix.lower() == _PROGRAM else []
    try:
        own = [*servers_of_program(calls, code, path.name)]
    except LaunchError:  # it takes its options from the command that its own text may show
        if not shown:
            raise
        own = []
    for found in own:
        beside = _files(path, none, found.options.values())
        world = _within(found.resources, around, path.name)
        yield replace(found, files={**beside, **found.files}, resources=world)
    yield from () if own else shown
    if shell.strip():
        yield from (replace(found, text=code) for found in _of_script(path, shell))
    for line, command in commands_of(calls):
        for found in _of_script(path, "\n" * (line - 1) + command):
            world = _within(found.resources, around, path.name)
            options = {**modal_concurrency(calls), **without_places(found.options)}
            yield replace(found, text=code, resources=world, options=options)


def _of_docstring(path: Path, text: str) -> Iterator[ParsedCommand]:
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
        return parse_calls(text, path.name), text, ""
    code, shell = program_and_shell([*cells_of(text, path.name)])
    lines = zip(code.split("\n"), shell.split("\n"), strict=True)
    whole = "\n".join(own or other for own, other in lines)  # versions stand in both
    return parse_calls(code, path.name), whole, shell


def _of_yaml(path: Path, text: str) -> Iterator[ParsedCommand]:
    yield from _of_containers(path, text)
    yield from (found for found in parse_documents(path, text) if found.target)


def _of_arguments(path: Path, script: Script) -> Iterator[ParsedCommand]:
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
    inner = StartedProgram(
        words=tuple(words), environment={}, world=JobResources(), line=words[0].line
    )
    yield parse_command(path, script, inner, target)


def _removed_program(path: Path, script: Script, inner: StartedProgram) -> ParsedCommand | None:
    """Return a command of a program that `read_launch` refuses as removed, or None."""
    name = name_removed_program(command_texts(inner.words))
    return (
        ParsedCommand(target=name, name=path.name, text=script.text, line=inner.line)
        if name
        else None
    )


def target_of_command(words: Sequence[Word]) -> LaunchTarget | None:
    """The target whose program this is."""
    texts = command_texts(words)
    # Scripts that the Trainer's know by what they are called are others' too.
    known = sorted(readers().values(), key=lambda one: one.name in _OF_TRAINER)
    return next((one for one in known if one.starts(texts)), None)


def parse_command(
    path: Path, script: Script, inner: StartedProgram, target: LaunchTarget
) -> ParsedCommand:
    """A command as the target's parser reads it."""
    is_module = bool(inner.words) and inner.words[0].text == "-m"
    arguments = read_arguments(inner.words[is_module:], target.options)
    measures = bool(client_program([known_part(word) for word in inner.words]))
    unknown = [
        option for option in arguments.unknown if not (measures and is_of_clients(option.option))
    ]
    short = [option for option in unknown if option.option in ("-c", "--config")]
    return ParsedCommand(
        target=target.name,
        name=path.name,
        text=script.text,
        line=inner.line,
        options=arguments.options,
        unknown=(*unknown, *arguments.unknown_values),
        repeated=tuple(arguments.repeated),
        positional=tuple(arguments.positional),
        environment={name: option_of_value(name, word) for name, word in inner.environment.items()},
        resources=inner.world,
        notes=(f"{inner.front} is read as {target.title}, which it starts.",) * bool(inner.front),
        files=_files(path, script, [*arguments.options.values(), *arguments.positional, *short]),
    )


def _files(
    path: Path, script: Script, options: Iterable[ParsedOption], above: tuple[Path | str, ...] = ()
) -> dict[str, ParsedCommand]:
    """The documents that options name: those that the script writes, or that stand beside it.

    Documents name further ones, from where they stand themselves; ``above`` are those that these
    are named by.
    """
    files: dict[str, ParsedCommand] = {}
    for option in options:
        for text in option.texts:
            if text is None or not (
                text.lower().endswith((*_DOCUMENTS, _JSON_TOO)) or "modelfile" in text.lower()
            ):
                continue
            document = _document(path, script, text)
            if document is None or (document.path or text) in above:
                continue
            own, place = document.options.values(), document.path or path
            inside = _files(place, script, own, (*above, document.path or text))
            files |= {**inside, text: replace(document, files=inside)}
    return files


def _document(path: Path, script: Script, name: str) -> ParsedCommand | None:
    for written, document in script.files.items():
        if Path(written).name == Path(name).name:
            if (modelfile := modelfile_of(document.text, name)) is not None:
                return modelfile
            return parse_here_document(path, script, document, Path(name).name)
    parts = Path(name).parts  # a folder may be mounted elsewhere than it stands here
    ends = [Path(*parts[start:]) for start in range(1, len(parts))]
    # Commands name files from the folder that they are started in, often that of all.
    around = path.absolute().parents[1:MOST_ABOVE] if len(parts) > 1 else ()
    places = [path.parent / name, *(path.parent / end for end in ends)]
    for place in (*places, *(folder / name for folder in around)):
        try:
            text = read_files.read_text(place, LARGEST, _MissingFile)
        except _MissingFile:
            continue
        if place.suffix == _JSON_TOO and not text.lstrip().startswith("{"):
            continue
        made = (replace(one, path=place) for one in parse_documents(place, text))
        return modelfile_of(text, name) or next(made, None)
    return None


def _of_containers(path: Path, text: str) -> Iterator[ParsedCommand]:
    """What the containers of a file start; those that follow another are part of its job."""
    for config, pool in configs_of(text, path.name):
        yield served_by_ray(config, pool, text, path.name)
    containers = containers_of(text, path.name) or tasks_of(text, path.name)
    brought = config_maps(text, path.name) if containers else {}
    for container in containers:
        script = script_of(container, container.text or text, path.name)
        script = replace(script, files={**brought, **script.files})
        for inner in inner_commands(script):
            yield from _requests(path, script, inner)
            if (removed := _removed_program(path, script, inner)) is not None:
                yield removed
                continue
            target = target_of_command(inner.words)
            if target is not None and not container.is_follower:
                words = with_arguments(inner.words, container.environment, script.files)
                if container.role and not any(word.begins in _POOL_OPTIONS for word in words):
                    told = (_POOL_OPTIONS[0], container.role)  # by the container alone
                    words += [Word.of(computed_text(one), container.line, one) for one in told]
                placed = replace(
                    inner,
                    words=tuple(words),
                    world=_within(inner.world, container.world, path.name),
                )
                if container.load:
                    yield ParsedCommand(
                        target=REQUESTS,
                        name=path.name,
                        text=script.text,
                        line=inner.line,
                        options=container.load,
                    )
                command = parse_command(path, script, placed, target)
                yield replace(command, deployment=container.deployment)


def _within(own: JobResources, around: JobResources, name: str) -> JobResources:
    """What a command says of where it runs, and its container where that says nothing.

    Raises LaunchError if the command starts on more GPUs of a node than its container has.
    """
    wants, has = own.gpus_per_node, around.gpus_per_node
    if (parse_int(wants) or 0) > (parse_int(has) or math.inf) and wants and has:
        raise LaunchError(
            f"{name}: line {wants.line}: {wants.option} {wants.texts[0]} is more than the "
            f"{has.texts[0]} of {has.option} on line {has.line}. Change one of them."
        )
    told = {each.name: getattr(own, each.name) for each in fields(JobResources)}
    return replace(around, **{name: value for name, value in told.items() if value is not None})


def nothing_found(path: Path, text: str) -> str:
    """What a file without a launch does, as far as that helps."""
    known = ", ".join(readers())
    if path.suffix.lower() in PROSE:
        return f"{path}: no code block starts anything supported. Supported: {known}."
    if path.suffix.lower() in (_PROGRAM, _NOTEBOOK):
        return explain_no_calls(path, _called(path, text)[0])
    if path.suffix.lower() in _DOCUMENTS:
        if own := unsupported_server((), text):
            return f"{path}: {own}"
        return f"{path}: is not a file of a supported tool. Supported: {known}."
    commands = inner_commands(read_script(text, {}, path.name))
    for place, code in filter(
        None, (_sibling_program(path, command.words, (_PROGRAM,)) for command in commands)
    ):
        calls = parse_calls(code, place.name)
        if not [*servers_of_program(calls, code, place.name)]:  # what it cannot be read for is told
            return explain_no_calls(place, calls)
    programs = dict.fromkeys(
        next((told for told in map(known_part, inner.words[:2]) if not told.startswith("-")), "")
        for inner in commands
        if known_part(inner.words[0]) not in _PLUMBING
    )
    if own := unsupported_server([*programs], ""):
        return f"{path}: {own}"
    names = [name for name in programs if name][:_MOST_NAMED]
    does = f"it runs {', '.join(names)}" if names else "it runs no program"
    return f"{path}: starts nothing that is supported: {does}. Supported: {known}."


@snapshot_files()
def read_launch(
    path: Path,
    number: int | None = None,
    specs: Path | None = None,
    *,
    num_gpus: str | None = None,
    gpu: str | None = None,
    release: str = "",
    text: str | None = None,
    workload: object = None,
) -> ImportedLaunch:
    """The launch in a file or a folder; of several the one of this ``number``, counted from 1.

    Without a number the first whose model and sizes are known, with a note of the others.

    ``num_gpus`` and ``gpu`` are those on which the user starts it, ``release`` is the version of
    the engine that he names, whatever the file says;
    ``text`` is read in place of that of the file; ``workload`` is what is planned of programs
    that do several things.
    Raises LaunchError if it cannot be read, starts nothing that planner reads, or less than
    ``number`` things.
    """
    started = _of_folder(path) if os.path.isdir(path) else _of_file(path, text)
    found: list[ImportedLaunch] = []
    errors: list[PlannerError] = []
    for file, one in started:
        try:
            refuse_removed_name(one.target, f"{file}:{one.line}", _DESCRIBE)
            target = readers()[one.target].for_workload(workload)
            found.append(import_launch(file, target, _on(one, num_gpus, gpu, release), specs))
        except PlannerError as error:  # of several things some may be for people alone
            errors.append(error)
    if not found:
        raise errors[0]
    several = merge_pools(unique_launches(found))
    if number is None:
        planned = [one for one in several if one.workload == workload] or several
        named = [one for one in planned if "model" in one.values]
        loaded = [one for one in named if not named[1:] or one.has_model(specs)]
        # Of several servers one may take its sizes from outside.
        sizes = {*terms_about("model_parallel", "serve")}
        told = [one for one in loaded if not sizes & {*one.lacking({})}]
        known = (told or loaded or named or planned)[0]
        return _noted(_complete(known, specs), several)
    if not 1 <= number <= len(several):
        listed = "".join(f"\n  {words}" for words in _places(several))
        raise LaunchError(f"{path}: starts {len(several)} things, not {number}:{listed}")
    return _complete(several[number - 1], specs)


def _of_file(path: Path, text: str | None) -> list[tuple[Path, ParsedCommand]]:
    text = text or text_of(path)
    is_yaml = path.suffix.lower() in _YAML
    chart = chart_around(path) if is_yaml else None
    of_chart = chart is not None or (is_yaml and is_template(text))
    try:
        found = [(launch.path or path, launch) for launch in parse_launches(path, text)]
    except LaunchError:
        if not of_chart:
            raise
        found = []
    if not found and chart is not None:
        found = read_chart(chart, _of_yaml, values_options(chart, path))
    elif not found and of_chart:
        raise LaunchError(f"{path}: {RENDER_IT}")
    if not found:
        raise LaunchError(nothing_found(path, text))
    return found


def _of_folder(folder: Path) -> list[tuple[Path, ParsedCommand]]:
    """What the files of a folder start, without those that the commands of others read."""
    if (chart := chart_around(folder)) is not None and (own := read_chart(chart, _of_yaml)):
        return own
    every: dict[Path, list[ParsedCommand]] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() not in _OF_FOLDERS or not path.is_file():
            continue
        try:
            every[path] = [*_all_of(path, text_of(path))]
        except LaunchError:
            continue
    sent = [one for found in every.values() for one in found if one.target == REQUESTS]
    found = [(path, one) for path, own in every.items() for one in servers_with_load(own, sent)]
    read = {Path(name).name for _, one in found for name in one.files}
    found = [(path, one) for path, one in found if path.name not in read]
    if not found:
        raise LaunchError(f"{folder}: no file in it starts anything supported.")
    return found


def _places(several: Sequence[ImportedLaunch]) -> list[str]:
    return [
        f"--row {number} is {one.target.title}, line {one.command.line} of {one.path.name}"
        + (f", {one.values['model']}" if "model" in one.values else "")
        for number, one in enumerate(several, start=1)
    ]


def _noted(launch: ImportedLaunch, several: Sequence[ImportedLaunch]) -> ImportedLaunch:
    """The launch with a note of what else its file starts."""
    if len(several) == 1:
        return launch
    others = "; ".join(_places(several)[:_MOST_NAMED])
    note = f"The file starts {len(several)} different things, this is one of them: {others}."
    return replace(launch, notes=(*launch.notes, note))


def _complete(launch: ImportedLaunch, specs: Path | None) -> ImportedLaunch:
    """The launch; where it starts one of two kinds of workers alone, the others are taken alike."""
    kinds = {name for name in REPLICAS if name in launch.values}
    if launch.values.get("mode") != "disaggregated" or len(kinds) != 1:
        return launch
    own, other = ("decode", "prefill") if REPLICAS[0] in kinds else ("prefill", "decode")
    kept = {name: v for name, v in launch.command.options.items() if name not in _POOL_OPTIONS}
    options = {**kept, _POOL_OPTIONS[0]: implied_option(_POOL_OPTIONS[0], other)}
    twin = import_launch(
        launch.path, launch.target, replace(launch.command, options=options), specs
    )
    note = (
        f"It starts the {own} workers alone: as many {other} workers are taken to be like them. "
        "Give the directory with both files to be sure."
    )
    both = (
        pair_pools((twin, 1), (launch, 1))
        if own == "decode"
        else pair_pools((launch, 1), (twin, 1))
    )
    return replace(both, command=launch.command, notes=(note, *both.notes))


def _on(
    command: ParsedCommand, num_gpus: str | None, gpu: str | None, release: str
) -> ParsedCommand:
    """The launch on so many GPUs of this kind, of this release, where the user names them."""
    command = replace(command, release=release or command.release)
    world = command.resources
    if num_gpus is not None:
        world = JobResources(num_gpus=implied_option("num_gpus", num_gpus, 0), gpu=world.gpu)
    return replace(command, resources=world if gpu is None else replace(world, gpu=gpu))


def text_of(path: Path) -> str:
    """The text of a launch file. Raises `LaunchError` where it is none, or too long."""
    return read_files.read_text(path, LARGEST, LaunchError)

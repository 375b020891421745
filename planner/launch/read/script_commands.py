"""Commands in scripts, container manifests and argument lists, with the files that they name."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from functools import partial
from pathlib import Path

from planner.base import read_files
from planner.documents.python_calls import argument_defaults, parse_calls
from planner.documents.shell import Script, Word
from planner.documents.shell.edits import LARGEST, ParsedOption, implied_option
from planner.documents.shell.scope import ALL_ARGUMENTS
from planner.documents.shell.syntax import computed_text
from planner.documents.yaml_tree import read_trees
from planner.errors import LaunchError
from planner.launch.option_table import ParserOptions
from planner.launch.read.guess_programs import guess_program, only_generates
from planner.launch.read.parse_arguments import (
    command_texts,
    parse_documents,
    parse_here_document,
    read_arguments,
    readable_part,
)
from planner.launch.read.parsed_launch import (
    MAX_PARENT_FOLDERS,
    JobResources,
    ParsedCommand,
    parse_int,
    suffix_of,
)
from planner.launch.read.python_programs import (
    merge_torchtitan_function,
    program_adapters,
    served_by_ray,
    servers_of_program,
)
from planner.launch.read.removed import name_removed_program
from planner.launch.read.unread_words import (
    EDITORS,
    report_cut_options,
    report_edits,
    run_time_words,
    with_cut_options,
)
from planner.launch.target import LaunchTarget
from planner.launch.targets import readers, targets
from planner.launch.targets.ollama import modelfile_of
from planner.launch.wrappers.read_containers import (
    Container,
    config_maps,
    script_of,
)
from planner.launch.wrappers.read_dockerfile import built_images
from planner.launch.wrappers.read_helm_charts import (
    helm_install,
    kubectl_apply,
    without_positions,
)
from planner.launch.wrappers.read_nested_commands import engine_mappings, nested_containers
from planner.launch.wrappers.read_programs import (
    StartedProgram,
    inner_commands,
    option_of_value,
    read_script,
)
from planner.launch.wrappers.read_ray_serve import ray_serve_configs
from planner.launch.wrappers.read_recipes import entry_of
from planner.launch.wrappers.read_server_objects import containers_of
from planner.launch.wrappers.read_wrapped_commands import SCRIPTS
from planner.launch.write.benchmark import (
    REQUESTS,
    client_options,
    client_program,
    is_client_option,
    parse_load,
)

_MAX_DEPTH = 3
# At most one in so many options of a bare list may be unknown.
_OPTIONS_PER_UNKNOWN = 4
DOCUMENT_SUFFIXES = (".yaml", ".yml", ".json", ".toml")
YAML_SUFFIXES = (".yaml", ".yml")
_TOML_SUFFIX = ".toml"
_JSON_SUFFIX = ".conf"
"""Configurations of DeepSpeed may have this suffix, as files of other kinds do."""
PYTHON_SUFFIX = ".py"
_MODEL_NAME = "model_name_or_path"
_TRAINER_TARGETS = ("transformers", "deepspeed", "accelerate")
POOL_OPTIONS = ("--disaggregation-mode", "--is-prefill-worker", "--is-decode-worker")


class MissingFileError(LaunchError):
    """A file named by an option is missing or not readable."""


def parse_script(
    path: Path, text: str, variables: Mapping[str, str] | None = None, depth: int = 0
) -> Iterator[ParsedCommand]:
    """Yield the commands of a script run with ``variables``, and of scripts that it starts.

    ``depth`` counts the scripts around it.
    """
    if (modelfile := modelfile_of(text, path.name)) is not None:
        yield modelfile
        return
    entry = entry_of(path, text)
    environment = {} if entry is None else entry.environment
    script = read_script(
        text, {**environment, **(variables or {})}, path.name, partial(_nearby_text, path)
    )
    if text.lstrip().startswith("-"):
        yield from _parse_argument_list(path, script)
        return
    chart_errors: list[LaunchError] = []
    commands = [
        report_edits(command, script)
        for command in _parse_commands(path, script, depth, chart_errors)
    ]
    if chart_errors and not commands:
        raise chart_errors[0]
    if entry is None:
        yield from commands
    elif any(command.target != REQUESTS for command in commands):
        yield from (replace(command, notes=(entry.note,)) for command in commands)
    else:  # the command is in another file: the entry has its name and count
        for command in parse_yaml(entry.file, entry.text):
            yield replace(command, path=entry.file)


def _parse_commands(
    path: Path, script: Script, depth: int, chart_errors: list[LaunchError]
) -> Iterator[ParsedCommand]:
    """Yield the parsed commands of a script; errors of Helm charts go to ``chart_errors``."""
    for inner, cut_off in with_cut_options(inner_commands(script)):
        yield from parse_client(path, script, inner)
        if (removed := find_removed_program(path, script, inner)) is not None:
            yield removed
            continue
        target = target_of_command(inner.words)
        sibling = find_sibling(path, inner.words, SCRIPTS) if target is None else None
        started = sibling and [*_parse_sibling_script(path, script, inner, sibling, depth)]
        if started:
            yield from started
            continue
        if target is None and (guessed := guess_program(inner)) is not None:
            inner, target = guessed, target_of_command(guessed.words)
        if target is None and readable_part(inner.words[0]) in EDITORS:
            continue
        if target is None:
            documents: list[ParsedCommand] = []
            if (sibling := find_sibling(path, inner.words, DOCUMENT_SUFFIXES)) is not None:
                with suppress(LaunchError):  # a document that anything may read
                    started = [*parse_yaml(*sibling)]
                    documents = [_of_unknown_program(each, sibling[0], inner) for each in started]
            calls = [*_parse_program_calls(path, script, inner, None)]
            trains = {each.target for each in (*documents, *calls)} <= {*_TRAINER_TARGETS}
            if documents and calls and trains:
                documents, calls = [_with_options(each, calls[0]) for each in documents], []
            yield from calls
            try:
                for file, started_command in helm_install(path, inner.words, parse_yaml):
                    yield replace(started_command, path=file, name=file.name)
            except LaunchError as error:  # another command of the script may start something
                chart_errors.append(error)
            for file, started_command in kubectl_apply(path, inner.words, script, parse_yaml):
                options = (
                    without_positions(started_command.options)
                    if file == path
                    else started_command.options
                )
                yield replace(started_command, path=file, name=file.name, options=options)
            yield from documents
            continue
        inner.require_agreement(path.name)
        command = report_cut_options(parse_command(path, script, inner, target), cut_off)
        if target.name == "torchtitan":
            command = merge_torchtitan_function(command, path.parent)
        names = {name.lstrip("-").partition(".")[0] for name in (*command.options, *command.files)}
        names |= {name for file in command.files.values() for name in file.options} & {_MODEL_NAME}
        if target.name not in _TRAINER_TARGETS:
            yield command
        elif names & {_MODEL_NAME, "model"}:
            program = find_sibling(path, inner.words, (PYTHON_SUFFIX,), script)
            yield command if program is None else _with_defaults(command, *program)
        else:
            yield from _parse_program_calls(path, script, inner, command)


def _with_options(document: ParsedCommand, call: ParsedCommand) -> ParsedCommand:
    """Return the document that a program reads, with what only the program sets."""
    names = {name.lstrip("-") for name in document.options}
    options = {name: o for name, o in call.options.items() if name.lstrip("-") not in names}
    return replace(
        document,
        options={**document.options, **options},
        positional=(*document.positional, *call.positional),
    )


def _of_unknown_program(command: ParsedCommand, file: Path, inner: StartedProgram) -> ParsedCommand:
    """Return the command of a document that an unknown program reads, on the program's GPUs."""
    program = " ".join(command_texts(inner.words)[:2])
    return replace(
        command,
        path=file,
        name=file.name,
        resources=merge_resources(command.resources, inner.resources, file.name),
        unknown=(*command.unknown, implied_option("the program", program, inner.line)),
    )


def _parse_program_calls(
    path: Path, script: Script, inner: StartedProgram, command: ParsedCommand | None
) -> Iterator[ParsedCommand]:
    """Yield the engine and training calls of a Python program, with the options of its command.

    Without such calls, the command alone, if there is one.
    """
    arguments = read_arguments(inner.words, ParserOptions({}, {}))
    options_by_name = {
        option.option.lstrip("-").replace("-", "_"): option for option in arguments.unknown
    }
    readable_values = {
        name: option.single or "true"
        for name, option in options_by_name.items()
        if None not in option.texts
    }
    calls: list[ParsedCommand] = []
    unread: tuple[ParsedOption, ...] = ()
    if (program := find_sibling(path, inner.words, (PYTHON_SUFFIX,), script)) is not None:
        sibling, text = program
        with suppress(LaunchError):
            environment = {
                name: word.text for name, word in inner.environment.items() if word.text is not None
            }
            found_calls = parse_calls(
                text, sibling.name, readable_values, program_files(sibling), environment
            )
            calls = [*servers_of_program(found_calls, text, sibling.name)]
        # Options that the program itself does not name are those of a launcher or a library.
        unread = tuple(o for name, o in options_by_name.items() if name not in text)
    for call in calls:
        if "deepspeed" in options_by_name:
            call = replace(
                call, options={"--deepspeed": options_by_name["deepspeed"], **call.options}
            )
        files = {**find_files(path, script, call.options.values()), **call.files}
        here = replace(call, name=path.name, text=script.text, line=inner.line, files=files)
        if command is None:
            resources = merge_resources(inner.resources, call.resources, path.name)
            unread = tuple(o for o in unread if f"--{o.option.lstrip('-')}" not in call.options)
            yield replace(here, resources=resources, unknown=(*call.unknown, *unread))
        else:
            yield replace(
                command,
                options={**call.options, **command.options},
                files={**files, **command.files},
                positional=(*command.positional, *call.positional),
                unknown=call.unknown,
            )
    if command is not None and not calls:
        yield command if program is None else _with_defaults(command, *program)


_ADAPTS = ("lora_enable", "use_lora", "use_peft")
"""Options of programs without which their sizes of adapters mean nothing."""


def _with_defaults(command: ParsedCommand, file: Path, program: str) -> ParsedCommand:
    """Return a training command with the defaults of its program's own options, and its adapters.

    ``program`` is the text of the program in ``file``.
    """
    target = readers()[command.target]
    all_options = {*command.options.values(), *command.unknown}
    switches = {option.option.lstrip("-"): option.single for option in all_options}
    with suppress(LaunchError):
        defaults = argument_defaults(program, file.name, program_files(file))
        is_adapted = all(
            str(switches.get(name, defaults.get(name))).lower() != "false" for name in _ADAPTS
        )
        for name, value in defaults.items():
            option = target.options.find(f"--{name}")
            if not is_adapted and name.startswith("lora"):
                continue
            if option is None or option.name in command.options or value is False:
                continue
            text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
            text = "true" if value is True else text
            default = implied_option(option.name, text, command.line)
            command = replace(command, options={**command.options, option.name: default})
        if "--use_peft" not in command.options:
            values = {name: text or "true" for name, text in switches.items()}
            calls = parse_calls(program, file.name, values, program_files(file))
            options = {**program_adapters(calls, file.name), **command.options}
            command = replace(command, options=options)
    return command


def parse_client(path: Path, script: Script, inner: StartedProgram) -> Iterator[ParsedCommand]:
    """Yield the load that a benchmark client sends; nothing if the command is no client."""
    if name := client_program([readable_part(word) for word in inner.words]):
        options = read_arguments(inner.words, client_options(name)).options
        sent_command = ParsedCommand(
            target="", name=path.name, text=script.text, line=inner.line, options=options
        )
        yield parse_load(name, sent_command)


def _parse_sibling_script(
    path: Path, script: Script, inner: StartedProgram, sibling: tuple[Path, str], depth: int
) -> Iterator[ParsedCommand]:
    """Yield the commands of a script in the same folder that another script starts.

    Nothing if it cannot be read, or scripts start each other too deeply.
    """
    file, text = sibling
    # The text of a command line is that of no file.
    if depth >= _MAX_DEPTH or (path.exists() and file.samefile(path)):
        return
    index = next(
        (n for n, word in enumerate(inner.words) if (word.text or "").endswith(SCRIPTS)), 0
    )
    arguments = {str(number): word for number, word in enumerate(inner.words[index:]) if number}
    shell_words = {**inner.environment, **arguments}
    environment = {name: word.text for name, word in shell_words.items() if word.text is not None}
    is_complete = {*arguments} <= {*environment}
    if arguments and is_complete:
        environment[ALL_ARGUMENTS] = ""
    with suppress(LaunchError):
        for command in [*parse_script(file, text, environment, depth + 1)]:
            takes_all = any(_TAKES_ALL.fullmatch(option.option) for option in command.unknown)
            lost = [run_time_words(f"the arguments of {file.name}", inner.line)]
            yield replace(
                command,
                unknown=(*command.unknown, *(lost if takes_all and not is_complete else ())),
                name=path.name,
                text=script.text,
                line=inner.line,
                options=without_positions(command.options),
                resources=merge_resources(command.resources, inner.resources, path.name),
            )


_TAKES_ALL = re.compile(r'"?\$[@*]"?')


def find_sibling(
    path: Path, words: Sequence[Word], suffixes: tuple[str, ...], script: Script | None = None
) -> tuple[Path, str] | None:
    """Return path and text of a program that a command starts; else None.

    It is a file that ``script`` writes or a ConfigMap has, or is near ``path``.
    """
    name = next((word.text for word in words if (word.text or "").endswith(suffixes)), None)
    if name is None and PYTHON_SUFFIX in suffixes and words[1:] and words[0].text == "-m":
        name = f"{(words[1].text or '').replace('.', '/')}{PYTHON_SUFFIX}"
    for written, document in script.files.items() if script is not None and name else ():
        if Path(written).name == Path(name or "").name:
            return Path(written), document.text
    for file in nearby_files(path, name) if name else ():
        with suppress(MissingFileError):
            return file, read_files.read_text(file, LARGEST, MissingFileError)
    return None


def nearby_files(path: Path, name: str) -> tuple[Path, ...]:
    """Return where a file of this name may be: as written, and by the ends of its path.

    Commands name files relative to their working folder, often the root of the project, and
    containers mount folders at other paths.
    """
    parts = Path(name).parts
    ends = [Path(*parts[start:]) for start in range(1, len(parts))]
    num_above = MAX_PARENT_FOLDERS if len(parts) > 1 else 2
    above = [folder / name for folder in path.absolute().parents[1:num_above]]
    return (path.parent / name, *(path.parent / end for end in ends), *above)


def _nearby_text(path: Path, name: str) -> str | None:
    """Return the text of a file near ``path`` that is not the file itself; None without one."""
    for file in nearby_files(path, name.lstrip("/")):
        with suppress(MissingFileError):
            if file.resolve() != path.resolve():
                return read_files.read_text(file, LARGEST, MissingFileError)
    return None


def program_files(path: Path) -> Callable[[str], str | None]:
    """Return a function that returns the text of a module or configuration near a program.

    Modules are only where Python finds them: in the program's folder or in folders above it.
    """

    def read(name: str) -> str | None:
        if not name.endswith(PYTHON_SUFFIX):
            return _nearby_text(path, name)
        for folder in path.absolute().parents[:MAX_PARENT_FOLDERS]:
            with suppress(MissingFileError):
                if (folder / name).resolve() != path.resolve():
                    return read_files.read_text(folder / name, LARGEST, MissingFileError)
        return None

    return read


def parse_yaml(path: Path, text: str) -> Iterator[ParsedCommand]:
    """Yield the commands of a YAML or JSON text, and its documents that a target reads.

    If there are none, the commands anywhere in it. Of TOML, the documents alone.
    """
    script, is_toml = empty_script(path, text), suffix_of(path) == _TOML_SUFFIX
    commands = [] if is_toml else [*parse_containers(path, text)]
    commands += [
        replace(command, files=find_files(path, script, command.options.values()))
        for command in parse_documents(path, text)
        if command.target
    ]
    if not commands and not is_toml:
        for read_containers in (nested_containers, engine_mappings):
            containers = (*read_containers(text, path.name),)
            commands = commands or [*_parse_container_commands(path, text, containers)]
        commands = commands or [*_parse_mounted_programs(path, text)]
        commands = commands or [*_parse_built_images(path, text)]
    notes = () if is_toml or not commands else tuple(_repeated_keys(path, text))
    yield from (replace(command, notes=(*command.notes, *notes)) for command in commands)


def _repeated_keys(path: Path, text: str) -> Iterator[str]:
    """Yield a note for each key that a mapping of the text has twice."""
    for tree in read_trees(text, path.name):
        for key, first, again in tree.root.repeated:
            yield f"{key} is set in line {first} and again in line {again}, which is used."


def _parse_mounted_programs(path: Path, text: str) -> Iterator[ParsedCommand]:
    """Yield what the Python programs in the ConfigMaps of a text start, such as of Ray Serve."""
    for name, file in config_maps(text, path.name).items():
        if name.endswith(PYTHON_SUFFIX):
            yield from servers_of_program(parse_calls(file.text, name), text, path.name)


def _parse_built_images(path: Path, text: str) -> Iterator[ParsedCommand]:
    """Yield what the services of a Compose file start whose images are built near it."""
    for file, script, container in built_images(path, text):
        for started in parse_script(file, script):
            resources = merge_resources(started.resources, container.resources, path.name)
            options = without_positions(started.options)
            yield replace(started, text=text, resources=resources, options=options)


def _parse_argument_list(path: Path, script: Script) -> Iterator[ParsedCommand]:
    """Parse arguments without a program for the target that accepts most of them.

    Yield nothing if too many are unknown to that target.
    """
    words = [word for command in script.commands for word in command.words]
    names = {word.begins.partition("=")[0] for word in words if word.begins.startswith("--")}
    num_accepted = {
        target: sum(name in target.options.options for name in names)
        for target in targets().values()
    }
    target = max(num_accepted, key=lambda target: num_accepted[target])
    if num_accepted[target] * _OPTIONS_PER_UNKNOWN < len(names) * (_OPTIONS_PER_UNKNOWN - 1):
        return
    inner = StartedProgram(
        words=tuple(words), environment={}, resources=JobResources(), line=words[0].line
    )
    yield parse_command(path, script, inner, target)


def find_removed_program(path: Path, script: Script, inner: StartedProgram) -> ParsedCommand | None:
    """Return a command of a program that `read_launch` refuses as removed, or None."""
    name = name_removed_program(command_texts(inner.words))
    return (
        ParsedCommand(target=name, name=path.name, text=script.text, line=inner.line)
        if name
        else None
    )


def target_of_command(words: Sequence[Word]) -> LaunchTarget | None:
    """Return the target that reads commands of this program; None if no target does."""
    texts = command_texts(words)
    # Trainer targets match scripts by file name, which other tools use, too: they come last.
    by_specificity = sorted(readers().values(), key=lambda reader: reader.name in _TRAINER_TARGETS)
    started = next((target for target in by_specificity if target.starts(texts)), None)
    trains = started is not None and {*started.workloads} == {"train"}
    return None if trains and only_generates(texts) else started


def parse_command(
    path: Path, script: Script, inner: StartedProgram, target: LaunchTarget
) -> ParsedCommand:
    """Return a command with its options, as the parser of its target reads them."""
    is_module = bool(inner.words) and inner.words[0].text == "-m"
    arguments = read_arguments(inner.words[is_module:], target.options)
    measures = bool(client_program([readable_part(word) for word in inner.words]))
    unknown = [
        option for option in arguments.unknown if not (measures and is_client_option(option.option))
    ]
    config_options = [option for option in unknown if option.option in ("-c", "--config")]
    if any(word.text == "xargs" for word in inner.words):
        unknown.append(run_time_words("the words of xargs", inner.line))
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
        resources=inner.resources,
        notes=(f"{inner.front} is read as {target.title}.",) * bool(inner.front),
        files=find_files(
            path, script, [*arguments.options.values(), *arguments.positional, *config_options]
        ),
    )


def find_files(
    path: Path,
    script: Script,
    options: Iterable[ParsedOption],
    parents: tuple[Path | str, ...] = (),
) -> dict[str, ParsedCommand]:
    """Return the documents that options name, by name: in the script, or in files near it.

    Documents are searched for further names, relative to their own folder. ``parents`` are the
    documents that led here; they are not read again.
    """
    files: dict[str, ParsedCommand] = {}
    for option in options:
        for text in option.texts:
            if text is None or not (
                text.lower().endswith((*DOCUMENT_SUFFIXES, _JSON_SUFFIX))
                or "modelfile" in text.lower()
            ):
                continue
            document = _find_document(path, script, text)
            if document is None or (document.path or text) in parents:
                continue
            options_inside, document_path = document.options.values(), document.path or path
            nested = find_files(
                document_path, script, options_inside, (*parents, document.path or text)
            )
            files |= {**nested, text: replace(document, files=nested)}
    return files


def _find_document(path: Path, script: Script, name: str) -> ParsedCommand | None:
    """Return the document of this name: written by the script, or a file near it; else None."""
    for written_name, document in script.files.items():
        if Path(written_name).name == Path(name).name:
            if (modelfile := modelfile_of(document.text, name)) is not None:
                return modelfile
            return parse_here_document(path, script, document, Path(name).name)
    for file in nearby_files(path, name):
        try:
            text = read_files.read_text(file, LARGEST, MissingFileError)
        except MissingFileError:
            continue
        if file.suffix == _JSON_SUFFIX and not text.lstrip().startswith("{"):
            continue
        parsed = (replace(document, path=file) for document in parse_documents(file, text))
        return modelfile_of(text, name) or next(parsed, None)
    return None


def parse_containers(path: Path, text: str) -> Iterator[ParsedCommand]:
    """Yield the commands of the containers in a YAML text.

    Followers of a group of nodes are skipped: they belong to the command of the leader.
    """
    for config, pool in ray_serve_configs(text, path.name):
        yield served_by_ray(config, pool, text, path.name)
    yield from _parse_container_commands(path, text, containers_of(text, path.name))


def _parse_container_commands(
    path: Path, text: str, containers: Sequence[Container]
) -> Iterator[ParsedCommand]:
    """Yield the commands of containers, with the files of the ConfigMaps in the same text."""
    config_files = config_maps(text, path.name) if containers else {}
    for container in containers:
        script = script_of(container, container.text or text, path.name)
        script = replace(script, files={**config_files, **script.files})
        for inner in inner_commands(script):
            yield from parse_client(path, script, inner)
            if (removed := find_removed_program(path, script, inner)) is not None:
                yield removed
                continue
            target = target_of_command(inner.words)
            if target is None and (guessed := guess_program(inner)) is not None:
                inner, target = guessed, target_of_command(guessed.words)
            if target is None and not container.is_follower:
                for command in _parse_program_calls(path, script, inner, None):
                    resources = merge_resources(command.resources, container.resources, path.name)
                    yield replace(
                        command, resources=resources, options=without_positions(command.options)
                    )
            elif target is not None and not container.is_follower:
                words = [*inner.words]
                if container.role and not any(word.begins in POOL_OPTIONS for word in words):
                    role_option = (POOL_OPTIONS[0], container.role)  # only the container has it
                    words += [
                        Word.of(computed_text(text), container.line, text) for text in role_option
                    ]
                started = replace(
                    inner,
                    words=tuple(words),
                    resources=merge_resources(inner.resources, container.resources, path.name),
                )
                if container.load:
                    yield ParsedCommand(
                        target=REQUESTS,
                        name=path.name,
                        text=script.text,
                        line=inner.line,
                        options=container.load,
                    )
                command = parse_command(path, script, started, target)
                doubts = (implied_option(part, "", container.line) for part in container.doubts)
                yield replace(
                    command, deployment=container.deployment, unknown=(*command.unknown, *doubts)
                )


def merge_resources(program: JobResources, container: JobResources, name: str) -> JobResources:
    """Return the resources of a command; its container sets those that the command leaves open.

    Raises LaunchError if the command starts on more GPUs of a node than its container has.
    """
    requested, available = program.gpus_per_node, container.gpus_per_node
    if (parse_int(requested) or 0) > (parse_int(available) or math.inf) and requested and available:
        raise LaunchError(
            f"{name}: line {requested.line}: {requested.option} {requested.texts[0]} is more "
            "than the "
            f"{available.texts[0]} of {available.option} on line {available.line}. Change "
            "one of them."
        )
    specified = {field.name: getattr(program, field.name) for field in fields(JobResources)}
    return replace(
        container, **{name: value for name, value in specified.items() if value is not None}
    )


def empty_script(path: Path, text: str) -> Script:
    """A script without commands, for a text that is no shell script."""
    return Script(name=path.name, text=text, commands=(), variables={}, directives=(), files={})

"""Reading of a user's launch file; nothing in it is executed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from planner.base import read_files
from planner.documents.python_calls import parse_calls
from planner.documents.shell.edits import LARGEST, implied_option
from planner.documents.windows_shells import batch_as_shell, powershell_as_shell
from planner.errors import LaunchError, PlannerError
from planner.launch.option_table import shipped_rows
from planner.launch.read.embedded_commands import parse_program, parse_prose, read_calls
from planner.launch.read.import_launch import (
    ImportedLaunch,
    import_launch,
    merge_pools,
    pair_pools,
    unique_launches,
)
from planner.launch.read.parse_arguments import (
    readable_part,
)
from planner.launch.read.parsed_launch import (
    REPLICAS,
    JobResources,
    ParsedCommand,
    suffix_of,
)
from planner.launch.read.python_programs import (
    explain_no_calls,
    servers_of_program,
)
from planner.launch.read.removed import refuse_removed_name
from planner.launch.read.script_commands import (
    DOCUMENT_SUFFIXES,
    POOL_OPTIONS,
    PYTHON_SUFFIX,
    YAML_SUFFIXES,
    find_sibling,
    nearby_files,
    parse_script,
    parse_yaml,
    program_files,
)
from planner.launch.targets import readers
from planner.launch.targets.ollama import without_idle_servers
from planner.launch.wrappers.read_dockerfile import is_dockerfile, started_by_image
from planner.launch.wrappers.read_front_ends import (
    served_by_properties,
    served_by_triton,
    started_by_unit,
    unsupported_server,
)
from planner.launch.wrappers.read_helm_charts import (
    RENDER_HINT,
    find_chart,
    is_template,
    read_chart,
    values_options,
    without_positions,
)
from planner.launch.wrappers.read_kustomizations import find_kustomization, read_kustomization
from planner.launch.wrappers.read_programs import inner_commands, read_script
from planner.launch.wrappers.read_resources import gpus_in_text
from planner.launch.wrappers.read_wrapped_commands import SCRIPTS
from planner.launch.write.benchmark import (
    REQUESTS,
    client_only_note,
    servers_with_load,
)
from planner.question.terms import terms_about
from planner.specs.file_cache import snapshot_files
from planner.specs.quantization import checkpoint_of

SEVERAL_LAUNCHES = "The file has "
"""Beginning of the note that a file has several launches."""
_MAX_NAMED = 5
_NUM_SEARCH_FOLDERS = 3
PROSE_SUFFIXES = (".md", ".rst", ".markdown")
"""Texts for people: their code blocks are read."""
_NOTEBOOK_SUFFIX, _HTML_SUFFIX, _TRITON_SUFFIX = ".ipynb", ".html", ".pbtxt"
# Formats with special fields for the command that they start.
_OTHER_FORMATS = {
    ".properties": served_by_properties,
    ".service": started_by_unit,
    ".ps1": powershell_as_shell,
    ".bat": batch_as_shell,
    ".cmd": batch_as_shell,
    _TRITON_SUFFIX: served_by_triton,
}
_FOLDER_SUFFIXES = (".sh", ".bash", ".slurm", ".sbatch", *DOCUMENT_SUFFIXES)
_MANIFEST = re.compile(r"(?:\s|#[^\n]*\n|---)*(?:apiVersion|kind|services):[ \n]")
"""How a manifest begins, in a file without a suffix."""
# Commands of shells that are not the launched program.
_SHELL_UTILITIES = frozenset(
    {
        *("set", "export", "cd", "echo", ":", "mkdir", "exit", "source", ".", "read", "shift"),
        *("trap", "wait", "sleep", "kill", "cat", "ulimit", "test", "[", "printf", "unset"),
        *("local", "module", "conda", "pip", "cp", "rm", "ls", "exec", "eval", "return", "true"),
    }
)
_DESCRIBE_HINT = (
    "Describe the run with --model, --framework or --engine, and --set, not with --from."
)


def is_document(path: Path) -> bool:
    """Whether a file is YAML, JSON or TOML, not a script."""
    return suffix_of(path) in DOCUMENT_SUFFIXES


def parse_launches(path: Path, text: str) -> Iterator[ParsedCommand]:
    """Yield the servers and trainings that a file starts, in order, with the files that they name.

    Raises `LaunchError`: it cannot be read, or its scheduler and its launcher contradict each
    other.
    """
    commands = _with_decode_role(without_idle_servers([*_parse_by_format(path, text)]))
    load_commands = [command for command in commands if command.target == REQUESTS]
    if load_commands and len(load_commands) == len(commands):
        raise LaunchError(client_only_note(load_commands[0]))
    folders = path.absolute().parts[-_NUM_SEARCH_FOLDERS - 1 : -1]
    yield from (replace(command, search_folders=folders) for command in servers_with_load(commands))


def _with_decode_role(commands: Sequence[ParsedCommand]) -> list[ParsedCommand]:
    """Return the commands, with the role of decode workers that Dynamo's older graphs leave out.

    Until 0.8 ``--is-prefill-worker`` alone told its vLLM workers apart
    (components/backends/vllm/deploy/disagg.yaml of ai-dynamo/dynamo 0.5).
    """
    role_option, prefill_option, decode_option = POOL_OPTIONS
    roles = {name for command in commands for name in command.options}
    if prefill_option not in roles or roles & {role_option, decode_option}:
        return [*commands]
    role = {role_option: implied_option(role_option, "decode")}
    return [
        replace(command, options={**command.options, **role})
        if "dynamo.vllm" in command.words and prefill_option not in command.options
        else command
        for command in commands
    ]


def _parse_by_format(path: Path, text: str) -> Iterator[ParsedCommand]:
    """Yield servers, trainings and benchmark clients of a file, parsed by the file's suffix."""
    if is_document(path) or (not suffix_of(path) and _MANIFEST.match(text)):
        yield from parse_yaml(path, text)
        return
    if suffix_of(path) in PROSE_SUFFIXES:
        yield from parse_prose(path, text)
        return
    if suffix_of(path) in (PYTHON_SUFFIX, _NOTEBOOK_SUFFIX):
        yield from parse_program(path, text)
        return
    options = path.parent / "1" / "model.json"
    if suffix_of(path) == _TRITON_SUFFIX and options.is_file():  # of its backend for vLLM
        yield from (
            replace(command, path=options)
            for command in _parse_by_format(options, launch_text(options))
        )
        return
    started_by = _OTHER_FORMATS.get(suffix_of(path))
    started_by = started_by_image if is_dockerfile(path.name) else started_by
    if started_by is not None:
        for command in parse_script(path, started_by(text)):
            yield replace(command, text=text, options=without_positions(command.options))
        return
    if suffix_of(path) == _HTML_SUFFIX:
        raise LaunchError(
            f"{path}: HTML is not read. Copy the command into a file of its own, such as run.sh."
        )
    yield from parse_script(path, text)


_COMMENT_LINE = re.compile(r"(?m)^[ \t]*#(?!!)[^\n]*$")


def _recognized(path: Path, text: str, when: str | None = None) -> str:
    """Return what a file that nothing here predicts is, and what to give instead; "" if unknown.

    ``when``: only what is recognized then; ``first`` is before anything in the file is read.
    """
    text = _COMMENT_LINE.sub("", text)
    for row in shipped_rows("wrappers/recognized.csv"):
        is_named = re.fullmatch(row["file"], path.name) is not None
        is_due = when is None or row["when"] == when
        if is_due and is_named and (not row["pattern"] or re.search(row["pattern"], text)):
            reason = f"{path}: is {row['what']}: it starts nothing that planner predicts. "
            return f"{reason}Give {row['instead']}. {suggest_command(path, text)}"
    return ""


_REPOSITORY = re.compile(r"(?<![\w./@:-])[A-Za-z][\w-]*/[\w.-]*\w(?![\w/:@])")
_SERVES = re.compile(r"(?i)\bserv(e|er|ing)\b|inference|deploy")
_TRAINS = re.compile(r"(?i)train|fine-?tun|\bsft\b|epochs?\b")
_PER_NODE = re.compile(
    r"(?:nproc[-_]per[-_]node|gres=gpu:(?:\w+:)?|nvidia\.com/gpu)\D{1,3}(\d{1,2})\b"
)
_NODES = re.compile(r"(?:nnodes|--nodes|num[-_]nodes)\D{1,3}(\d{1,3})\b")
_MAX_REPOSITORIES = 50


def suggest_command(path: Path, text: str) -> str:
    """Return a sentence with a command for the run, with the model and GPUs that a text names."""
    names = dict.fromkeys(_REPOSITORY.findall(text))
    model = next(
        (name for name in [*names][:_MAX_REPOSITORIES] if checkpoint_of(name).model), "MODEL"
    )
    per_node, nodes = _PER_NODE.search(text), _NODES.search(text)
    count = str(int(per_node[1]) * (int(nodes[1]) if nodes else 1)) if per_node else "N"
    gpu = next((mention.gpu for mention in gpus_in_text(text, path)), "GPU")
    serves = len(_SERVES.findall(text)) > len(_TRAINS.findall(text))
    workload = " --workload serve" if serves else ""
    return f"Or describe it: planner estimate{workload} --model {model} --gpus {count} --gpu {gpu}"


def _explain_by_format(path: Path, text: str) -> str:
    """Return the error message for a file by its suffix."""
    supported = ", ".join(readers())
    if suffix_of(path) in PROSE_SUFFIXES:
        return f"{path}: no code block starts anything supported. Supported: {supported}."
    if suffix_of(path) in (PYTHON_SUFFIX, _NOTEBOOK_SUFFIX):
        return explain_no_calls(path, read_calls(path, text)[0])
    if suffix_of(path) in DOCUMENT_SUFFIXES:
        if error := unsupported_server((), text):
            return f"{path}: {error}"
        return f"{path}: is not a file of a supported tool. Supported: {supported}."
    commands = inner_commands(read_script(text, {}, path.name))
    for file, code in filter(
        None, (find_sibling(path, command.words, (PYTHON_SUFFIX,)) for command in commands)
    ):
        calls = parse_calls(code, file.name, read_file=program_files(file))
        if not [*servers_of_program(calls, code, file.name)]:
            return explain_no_calls(file, calls)
    programs = dict.fromkeys(
        next((word for word in map(readable_part, inner.words[:2]) if not word.startswith("-")), "")
        for inner in commands
        if readable_part(inner.words[0]) not in _SHELL_UTILITIES
    )
    if error := unsupported_server([*programs], ""):
        return f"{path}: {error}"
    names = [
        f"{name} (not found)"
        if name.endswith((PYTHON_SUFFIX, *SCRIPTS))
        and not any(file.is_file() for file in nearby_files(path, name))
        else name
        for name in [*filter(None, programs)][:_MAX_NAMED]
    ]
    summary = f"it runs {', '.join(names)}" if names else "it runs no program"
    return f"{path}: starts nothing that is supported: {summary}. Supported: {supported}."


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
    """Read the launch in a file or folder as settings of a plan.

    Raises LaunchError if the file cannot be read, starts nothing supported, or has fewer than
    ``number`` launches.

    Parameters
    ----------
    path : file or folder
    number : which of several launches, counted from 1; default: the first with known model and
        sizes, with a note of the others
    specs : folder of the user's specs
    num_gpus : GPUs that the user starts it on, whatever the file sets [1]
    gpu : GPU type, as ``num_gpus``
    release : version of the engine, as ``num_gpus``
    text : read in place of the text of the file
    workload : workload to plan, for programs with several
    """
    commands = _folder_commands(path) if os.path.isdir(path) else _file_commands(path, text)
    launches: list[ImportedLaunch] = []
    errors: list[PlannerError] = []
    for file, command in commands:
        try:
            refuse_removed_name(command.target, f"{file}:{command.line}", _DESCRIBE_HINT)
            target = readers()[command.target].for_workload(workload)
            launches.append(
                import_launch(file, target, _with_hardware(command, num_gpus, gpu, release), specs)
            )
        except PlannerError as error:  # some commands may be examples only
            errors.append(error)
    if not launches:
        raise errors[0]
    unique = merge_pools(unique_launches(launches))
    if number is None:
        of_workload = [launch for launch in unique if launch.workload == workload] or unique
        with_model = [launch for launch in of_workload if "model" in launch.values]
        with_loadable_model = [
            launch
            for launch in with_model
            if not with_model[1:] or launch.has_loadable_model(specs)
        ]
        # One of several servers may take its sizes from its environment.
        sizes = {*terms_about("model_parallel", "serve")}
        with_sizes = [
            launch for launch in with_loadable_model if not sizes & {*launch.missing_terms({})}
        ]
        chosen = (with_sizes or with_loadable_model or with_model or of_workload)[0]
        return _add_note_of_others(_add_missing_workers(chosen, specs), unique)
    if not 1 <= number <= len(unique):
        listed = "".join(f"\n  {label}" for label in _launch_labels(unique))
        raise LaunchError(f"{path}: has {len(unique)} entries, not {number}:{listed}")
    return _add_missing_workers(unique[number - 1], specs)


def _file_commands(path: Path, text: str | None) -> list[tuple[Path, ParsedCommand]]:
    """Return the commands of a file, or of the Helm chart around it, each with its path.

    Raises LaunchError if there is no command, or a template has no chart.
    """
    text = text or launch_text(path)
    is_yaml = suffix_of(path) in YAML_SUFFIXES
    if reason := _recognized(path, text, "first"):
        raise LaunchError(reason)
    chart = find_chart(path) if is_yaml else None
    is_chart = chart is not None or (is_yaml and is_template(text))
    if (kustomization := find_kustomization(path)) is not None and (
        commands := read_kustomization(kustomization, parse_yaml)
    ):
        return commands
    try:
        commands = [(launch.path or path, launch) for launch in parse_launches(path, text)]
    except LaunchError:
        if not is_chart:
            raise
        commands = []
    if not commands and chart is not None:
        commands = read_chart(chart, parse_yaml, values_options(chart, path))
    elif not commands and is_chart:
        raise LaunchError(f"{path}: {RENDER_HINT}")
    if not commands:
        explanation = f"{_explain_by_format(path, text)} {suggest_command(path, text)}"
        raise LaunchError(_recognized(path, text) or explanation)
    return commands


def _folder_commands(folder: Path) -> list[tuple[Path, ParsedCommand]]:
    """Return the commands in the files of a folder, without files that other commands read."""
    if (chart := find_chart(folder)) is not None and (
        chart_commands := read_chart(chart, parse_yaml)
    ):
        return chart_commands
    if (kustomization := find_kustomization(folder)) is not None and (
        built := read_kustomization(kustomization, parse_yaml)
    ):
        return built
    commands_by_file: dict[Path, list[ParsedCommand]] = {}
    for path in sorted(folder.iterdir()):
        if suffix_of(path) not in _FOLDER_SUFFIXES or not path.is_file():
            continue
        try:
            commands_by_file[path] = [*_parse_by_format(path, launch_text(path))]
        except LaunchError:
            continue
    load_commands = [
        command
        for commands in commands_by_file.values()
        for command in commands
        if command.target == REQUESTS
    ]
    commands = [
        (path, command)
        for path, file_commands in commands_by_file.items()
        for command in servers_with_load(file_commands, load_commands)
    ]
    read_names = {Path(name).name for _, command in commands for name in command.files}
    commands = [(path, command) for path, command in commands if path.name not in read_names]
    if not commands:
        raise LaunchError(f"{folder}: no file in it starts anything supported.")
    return commands


def _launch_labels(launches: Sequence[ImportedLaunch]) -> list[str]:
    """Return a text for each launch: its ``--row`` number, program, line, file and model."""
    return [
        f"--row {number} is {launch.target.title}, line {launch.command.line} of {launch.path.name}"
        + (f", {launch.values['model']}" if "model" in launch.values else "")
        for number, launch in enumerate(launches, start=1)
    ]


def _add_note_of_others(
    launch: ImportedLaunch, launches: Sequence[ImportedLaunch]
) -> ImportedLaunch:
    """Return the launch with a note that lists the other launches of its file, if there are any."""
    if len(launches) == 1:
        return launch
    labels = "; ".join(_launch_labels(launches)[:_MAX_NAMED])
    note = f"{SEVERAL_LAUNCHES}{len(launches)} different launches; this is one of them: {labels}."
    return replace(launch, notes=(*launch.notes, note))


def _add_missing_workers(launch: ImportedLaunch, specs: Path | None) -> ImportedLaunch:
    """Return a disaggregated launch with both kinds of workers.

    If the file has only prefill or only decode workers, equal workers of the other kind are added.
    """
    worker_kinds = {name for name in REPLICAS if name in launch.values}
    if launch.values.get("mode") != "disaggregated" or len(worker_kinds) != 1:
        return launch
    started_kind, missing_kind = (
        ("decode", "prefill") if REPLICAS[0] in worker_kinds else ("prefill", "decode")
    )
    other_options = {
        name: v for name, v in launch.command.options.items() if name not in POOL_OPTIONS
    }
    options = {**other_options, POOL_OPTIONS[0]: implied_option(POOL_OPTIONS[0], missing_kind)}
    missing_launch = import_launch(
        launch.path, launch.target, replace(launch.command, options=options), specs
    )
    note = (
        f"The file starts {started_kind} workers only. Assumed: as many {missing_kind} "
        "workers with "
        "equal options. Pass the directory with both files to read both."
    )
    pair = (
        pair_pools((missing_launch, 1), (launch, 1))
        if started_kind == "decode"
        else pair_pools((launch, 1), (missing_launch, 1))
    )
    return replace(pair, command=launch.command, notes=(note, *pair.notes))


def _with_hardware(
    command: ParsedCommand, num_gpus: str | None, gpu: str | None, release: str
) -> ParsedCommand:
    """Return the command with the GPUs and release that the user sets; None or "": unchanged."""
    command = replace(command, release=release or command.release)
    resources = replace(command.resources, named_gpu=command.resources.gpu)
    if num_gpus is not None:
        resources = JobResources(
            num_gpus=implied_option("num_gpus", num_gpus, 0),
            gpu=resources.gpu,
            named_gpu=resources.gpu,
        )
    return replace(command, resources=resources if gpu is None else replace(resources, gpu=gpu))


def launch_text(path: Path) -> str:
    """The text of a launch file. Raises `LaunchError` if it is not text, or too long."""
    return read_files.read_text(path, LARGEST, LaunchError)

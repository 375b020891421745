"""Helm charts, and what ``helm install`` and ``kubectl apply`` name, as launch files.

``helm template`` renders a chart, where helm is installed; a command that installs a chart is read
with the chart near it. Source: helm.sh/docs (helm/helm_template, version 3). Nothing is fetched: a
chart whose dependencies are missing gives helm's error.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from planner.base import read_files
from planner.documents.shell import Script, Word
from planner.documents.shell.edits import LARGEST, ParsedOption
from planner.documents.yaml_positions import documents
from planner.errors import LaunchError
from planner.launch.read.parsed_launch import MAX_PARENT_FOLDERS, ParsedCommand

Reader = Callable[[Path, str], Iterator[ParsedCommand]]
"""Reads the documents of a text, as of a file of this path."""
_INSTALL_COMMANDS = ("install", "upgrade", "template")
_VALUES_OPTIONS = ("-f", "--values")
_APPLY_COMMANDS, _FILE_OPTIONS = ("apply", "create", "replace"), ("-f", "--filename")
_SET_FILE = "--set-file"
_SET_OPTIONS = ("--set", "--set-string", "--set-json", "--set-literal", _SET_FILE)
_FLAGS = ("--install", "-i", "--wait", "--create-namespace", "--atomic", "--debug", "--dry-run")
_FROM_ENVIRONMENT = "FROM_OUTSIDE"
"""Replaces values from the environment of a command; reads as a placeholder."""
_PAIR = re.compile(r"([\w.\[\]\\/$-]+)=((?:\\.|[^,])*)(?:,|$)")
_CHART, _VALUES, _TEMPLATES = "Chart.yaml", "values.yaml", "templates"
_RENDERED, _RELEASE = "rendered.yaml", "release"
_HELM_SECONDS = 60
_ERROR_LENGTH = 500
RENDER_HINT = (
    "This is a Helm chart. Install helm, or run `helm template . > rendered.yaml` in the folder of "
    "the chart and pass that file."
)


def find_chart(path: Path) -> Path | None:
    """Return the folder of the Helm chart that contains a file or folder; None if there is none.

    For a values file, only its own folder counts: it may belong to any other chart.
    """
    folders = [path] if path.is_dir() else [path.parent]
    if _TEMPLATES in path.parts and not path.is_dir():
        folders += path.parents[1:4]
    return next((folder for folder in folders if (folder / _CHART).is_file()), None)


def is_template(text: str) -> bool:
    """Whether a YAML text is a template of a Helm chart that is not rendered yet."""
    return _TEMPLATE.search(text) is not None


_TEMPLATE = re.compile(r"\{\{[^{}\n]*\.Values\.")


def render_chart(chart: Path, options: Sequence[str] = ()) -> str:
    """Return the Kubernetes documents of a Helm chart, as ``helm template`` prints them.

    Raises LaunchError if helm is not installed, refuses the chart or takes too long; or the files
    come from a client of the server, for which no program is started.

    Parameters
    ----------
    chart : the folder of its Chart.yaml
    options : further options of ``helm template``, such as ``--values FILE``
    """
    helm = None if read_files.is_restricted() else shutil.which("helm")
    if helm is None:
        raise LaunchError(f"{chart}: {RENDER_HINT}")
    try:
        run = subprocess.run(
            [helm, "template", _RELEASE, str(chart.absolute()), *options],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_HELM_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise LaunchError(
            f"{chart}: helm template did not end within {_HELM_SECONDS} seconds."
        ) from error
    except OSError as error:
        raise LaunchError(f"{chart}: cannot start {helm}: {error}.") from error
    if run.returncode:
        raise LaunchError(f"{chart}: helm template failed: {run.stderr.strip()[:_ERROR_LENGTH]}")
    return run.stdout


def read_chart(
    chart: Path, read: Reader, options: Sequence[str] = ()
) -> list[tuple[Path, ParsedCommand]]:
    """Return the commands of a Helm chart, read from the output of ``helm template``.

    Options have no positions in the chart's files, so that they are not rewritten.
    Raises `LaunchError` as `render_chart` does.
    """
    path = chart / _RENDERED
    note = f"helm rendered the chart {chart.name}; lines are those of what `helm template` prints."
    return [
        (
            path,
            replace(
                command, notes=(*command.notes, note), options=without_positions(command.options)
            ),
        )
        for command in read(path, render_chart(chart, options))
    ]


def without_positions(options: Mapping[str, ParsedOption]) -> dict[str, ParsedOption]:
    """Return options without their positions in the file, so that they cannot be rewritten."""
    return {
        name: replace(option, spans=(None,) * len(option.texts), full_span=None)
        for name, option in options.items()
    }


def values_options(chart: Path, path: Path) -> tuple[str, ...]:
    """The options of ``helm template`` for a file of a chart: those that pass a values file."""
    is_values = path.parent == chart and path.name not in (_CHART, _VALUES, _RENDERED)
    return ("--values", str(path.absolute())) if is_values else ()


def helm_install(
    path: Path, words: Sequence[Word], read: Reader
) -> list[tuple[Path, ParsedCommand]]:
    """Return the commands that ``helm install`` starts, from a local chart or a values file.

    Empty for other commands. Raises LaunchError if a local chart cannot be rendered, or a values
    file is not YAML.
    """
    texts = [
        "".join(_FROM_ENVIRONMENT if piece.unknown else piece.text for piece in word.pieces)
        or (word.text or "")
        for word in words
    ]
    if texts[:1] != ["helm"] or not {*texts[1:2]} & {*_INSTALL_COMMANDS}:
        return []
    values_files: list[Path] = []
    settings: list[tuple[str, str]] = []
    arguments: list[str] = []
    index = 2
    while index < len(texts):
        option, equals, text = texts[index].partition("=")
        if option in (*_VALUES_OPTIONS, *_SET_OPTIONS) and not equals:
            index, text = index + 1, texts[index + 1] if index + 1 < len(texts) else ""
        if option in _VALUES_OPTIONS:
            values_files += filter(None, (_find_near(path, name) for name in text.split(",")))
        elif option in _SET_OPTIONS:
            settings.append((option, text))
        elif option.startswith("-"):
            index += not equals and option not in _FLAGS
        else:
            arguments.append(texts[index])
        index += 1
    charts = (_find_near(path, name) for name in arguments[::-1])
    folder = next(
        (chart_path for chart_path in charts if chart_path is not None and chart_path.is_dir()),
        None,
    )
    if folder is not None and (chart := find_chart(folder)) is not None:
        options = [word for file in values_files for word in ("--values", str(file))]
        for option, text in settings:
            options += _set_options(path, chart, option, text)
        return read_chart(chart, read, options)
    return [
        (file, command)
        for file in values_files[-1:]
        for command in read(file, read_files.read_text(file, LARGEST, LaunchError))
    ]


def _set_options(path: Path, chart: Path, option: str, text: str) -> Iterator[str]:
    """Yield ``--set`` options for ``helm template``; leave out numbers from the environment."""
    if option != _SET_FILE and _FROM_ENVIRONMENT not in text:
        yield from (option, text)
        return
    for name, value in _PAIR.findall(text):
        if option == _SET_FILE:
            if (file := _find_near(path, value)) is not None:
                yield from (option, f"{name}={file}")
        elif _FROM_ENVIRONMENT not in value or not _is_number(chart, name):
            yield from (option, f"{name}={value}")


def _is_number(chart: Path, name: str) -> bool:
    """True if the values file of a chart has a number under this dotted name."""
    file = chart / _VALUES
    if not file.is_file():
        return False
    values_documents = documents(read_files.read_text(file, LARGEST, LaunchError), file.name)
    texts = (document.get(*name.split(".")).text or "" for document in values_documents)
    return any(text.replace(".", "", 1).isdecimal() for text in texts)


def kubectl_apply(
    path: Path, words: Sequence[Word], script: Script, read: Reader
) -> list[tuple[Path, ParsedCommand]]:
    """Return the commands in what ``kubectl apply`` applies: a here-document or a local file.

    Empty for other commands.
    """
    texts = [word.text or "" for word in words]
    if texts[:1] not in (["kubectl"], ["oc"]) or not {*texts[1:]} & {*_APPLY_COMMANDS}:
        return []
    names = [text for option, text in pairwise(texts) if option in _FILE_OPTIONS]
    names += [text.partition("=")[2] for text in texts if text.startswith("--filename=")]
    commands: list[tuple[Path, ParsedCommand]] = []
    for name in names:
        line = words[0].line
        here_documents = (
            document
            for key, document in script.files.items()
            if key.startswith("<<") and document.line > line
        )
        document = (
            next(here_documents, None) if name == "-" else script.files.get(name.removeprefix("./"))
        )
        if document is not None:
            text = "\n" * (document.line - 1) + document.text
            commands += [(path, replace(command, text=script.text)) for command in read(path, text)]
        elif (file := _find_near(path, name)) is not None and file.is_file():
            text = read_files.read_text(file, LARGEST, LaunchError)
            commands += [(file, command) for command in read(file, text)]
    return commands


def _find_near(path: Path, name: str) -> Path | None:
    """Return a file or folder that a command names, near ``path`` or above; None if absent."""
    relative = name.rpartition(f"{_FROM_ENVIRONMENT}/")[2].strip("\"'").removeprefix("./")
    if (
        not relative
        or _FROM_ENVIRONMENT in relative
        or relative.startswith("/")
        or ".." in Path(relative).parts
    ):
        return None
    for folder in path.absolute().parents[:MAX_PARENT_FOLDERS]:
        with suppress(OSError):
            if (folder / relative).exists():
                return folder / relative
    return None

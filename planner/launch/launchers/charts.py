"""Charts of Helm: their templates filled with values, as documents that a cluster is given.

Source: helm.sh/docs (topics/charts, chart_template_guide, version 3). A chart's own values go
below those that the user gives; nothing is fetched, so that the charts it depends on are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from planner.base import reading
from planner.base.records import record
from planner.documents.go_template import Templates
from planner.documents.shell.text import LARGEST
from planner.documents.yaml_places import documents
from planner.errors import LaunchError

_CHART, _VALUES, _TEMPLATES = "Chart.yaml", "values.yaml", "templates"
_SUFFIXES = (".yaml", ".yml")
_HELPERS = (".tpl", ".txt")
_MOST_FILES = 200
_RELEASE = {"Name": "release", "Namespace": "default", "Service": "Helm", "IsInstall": True,
            "IsUpgrade": False, "Revision": 1}  # fmt: skip
_CLUSTER = {
    "KubeVersion": {"Version": "v1.33.0", "Major": "1", "Minor": "33"},
    "APIVersions": {"Has": lambda _: False},
}


@record(kw_only=True)
class Document:
    """A template of a chart that became a document: its ``text``, and the line of the template
    that each line of it comes from; ``left_out`` is what is not understood in it."""

    path: Path
    text: str
    lines: tuple[int, ...]
    left_out: tuple[str, ...]


def chart_around(path: Path) -> Path | None:
    """The folder of the chart that a file or a folder is, or is in; None where there is none.

    Of a values file that of its own folder alone: it may be for any other.
    """
    folders = [path] if path.is_dir() else [path.parent]
    if _TEMPLATES in path.parts and not path.is_dir():
        folders += path.parents[1:4]
    for folder in folders:
        if (folder / _TEMPLATES).is_dir() and (folder / _CHART).is_file():
            return folder
    return None


def documents_of(chart: Path, values: Mapping[str, Any] | None = None) -> Iterator[Document]:
    """What the templates of a chart become for its values and those of the user.

    Raises
    ------
    LaunchError
        Its values are no YAML, or no template can be read.
    """
    given = overlaid(values_of(chart), values or {})
    root = {
        "Values": given,
        "Release": _RELEASE,
        "Chart": {key[:1].upper() + key[1:]: one for key, one in _plain(chart / _CHART).items()},
        "Capabilities": _CLUSTER,
        "Template": {"Name": "", "BasePath": _TEMPLATES},
        "Files": {"Get": lambda name: _beside(chart, name)},
    }
    templates, faults = Templates(), []
    files = sorted(one for one in (chart / _TEMPLATES).rglob("*") if one.is_file())[:_MOST_FILES]
    parsed = {}
    for file in files:
        if file.suffix in (*_SUFFIXES, *_HELPERS):
            try:
                text = reading.read_text(file, LARGEST, LaunchError)
                parsed[file] = templates.add(text, str(file))
            except LaunchError as error:
                faults.append(error)
    read = 0
    for file, parts in parsed.items():
        if file.suffix not in _SUFFIXES:
            continue
        try:
            filled = templates.filled(parts, root)
        except LaunchError as error:
            faults.append(LaunchError(f"{file}: {error}"))
            continue
        read += 1
        yield Document(path=file, text=filled.text, lines=filled.lines, left_out=filled.left_out)
    if faults and not read:
        raise faults[0]


def values_of(chart: Path) -> dict[str, Any]:
    """The values of a chart itself; raises `LaunchError` where they are no YAML."""
    return _plain(chart / _VALUES)


def values_in(text: str, name: str) -> dict[str, Any]:
    """The values of a YAML text; raises `LaunchError` where it is none."""
    found = [one.plain for one in documents(text, name)]
    return {key: value for one in found if isinstance(one, dict) for key, value in one.items()}


def _beside(chart: Path, name: str) -> str:
    """The text of a file of a chart; empty where it has none of that name."""
    path = chart / name
    is_inside = ".." not in path.parts and chart in path.parents and path.is_file()
    return reading.read_text(path, LARGEST, LaunchError) if is_inside else ""


def _plain(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    return values_in(reading.read_text(path, LARGEST, LaunchError), path.name)


def overlaid(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Values with others over them; nothing in place of a value takes it away."""
    found = dict(below)
    for key, value in above.items():
        own = found.get(key)
        if isinstance(own, Mapping) and isinstance(value, Mapping):
            found[key] = overlaid(own, value)
        elif value is None and key in found:
            del found[key]
        else:
            found[key] = value
    return found

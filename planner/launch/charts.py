"""Charts of Helm, documents of Kubernetes and files of Ray Serve: what they start.

They are read where their templates, and the commands that install or apply them, stand. Source:
helm.sh/docs (topics/charts, chart_template_guide, version 3). A chart's own values go below those
that the user gives; nothing is fetched, so that the charts it depends on are left out.

A model of Ray Serve is described in the words of `LLMConfig` (ray-project/ray 2.50,
python/ray/llm/_internal/serve/core/configs/llm_config.py), here as the call of it that a program
would have.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from math import prod
from pathlib import Path

from planner.base import reading
from planner.base.records import record
from planner.documents.go_template import Templates
from planner.documents.python import Call, Untold, Value
from planner.documents.shell import Script, Word
from planner.documents.shell.text import LARGEST, Given
from planner.documents.yaml_places import Place, documents
from planner.errors import LaunchError
from planner.launch.launchers.containers import gpu_limit, gpu_of_nodes
from planner.launch.option_table import OptionTable, keys_of
from planner.launch.understood import MOST_ABOVE, Found

Reader = Callable[[Path, str], Iterator[Found]]
"""Reads the documents of a text, as of a file of this path."""
_INSTALLS = ("install", "upgrade", "template")
_FILES = ("-f", "--values")
_APPLIES, _APPLIED = ("apply", "create", "replace"), ("-f", "--filename")
_SETS = ("--set", "--set-string", "--set-file")
_FLAGS = ("--install", "-i", "--wait", "--create-namespace", "--atomic", "--debug", "--dry-run")
_OUTSIDE = "FROM_OUTSIDE"
"""In place of what a command takes from its environment; reads as a place to fill in."""
_MOST_TOLD = 3
_PAIR = re.compile(r"([\w.\[\]\\/$-]+)=((?:\\.|[^,])*)(?:,|$)")
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


def documents_of(chart: Path, values: Mapping[str, object] | None = None) -> Iterator[Document]:
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


def values_of(chart: Path) -> dict[str, object]:
    """The values of a chart itself; raises `LaunchError` where they are no YAML."""
    return _plain(chart / _VALUES)


def values_in(text: str, name: str) -> dict[str, object]:
    """The values of a YAML text; raises `LaunchError` where it is none."""
    found = [one.plain for one in documents(text, name)]
    return {key: value for one in found if isinstance(one, dict) for key, value in one.items()}


def _beside(chart: Path, name: str) -> str:
    """The text of a file of a chart; empty where it has none of that name."""
    path = chart / name
    is_inside = ".." not in path.parts and chart in path.parents and path.is_file()
    return reading.read_text(path, LARGEST, LaunchError) if is_inside else ""


def _plain(path: Path) -> dict[str, object]:
    if not path.is_file():
        return {}
    return values_in(reading.read_text(path, LARGEST, LaunchError), path.name)


def overlaid(below: Mapping[str, object], above: Mapping[str, object]) -> dict[str, object]:
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


def in_chart(
    chart: Path, values: Mapping[str, object] | None, read: Reader
) -> list[tuple[Path, Found]]:
    """What the templates of a chart start, each with the template that tells it.

    Raises
    ------
    LaunchError
        None of its templates can be read.
    """
    readable: list[Document] = []
    left_out: list[str] = []
    for document in documents_of(chart, values):
        left_out += [f"{document.path.name}: {why}" for why in document.left_out]
        with suppress(LaunchError):  # what it became is no YAML
            [*read(document.path, document.text)]
            readable.append(document)
    text = "".join(f"{one.text}\n---\n" for one in readable)
    places = [(one.path, line) for one in readable for line in (*one.lines, one.lines[-1])]
    notes: tuple[str, ...] = (f"Its templates are filled with the values of {chart.name}.",)
    if left_out:
        told = "; ".join(left_out[:_MOST_TOLD])
        notes += (f"Parts of its templates that are not understood, left out: {told}.",)
    found = []
    for one in read(chart / "values.yaml", text):
        path, _ = places[min(one.line, len(places)) - 1]
        found.append((path, _placed(one, path, places, text, notes)))
    return found


def installed(path: Path, words: Sequence[Word], read: Reader) -> list[tuple[Path, Found]]:
    """What a command of Helm installs: a chart that stands near it, or values of one that is
    elsewhere; nothing of any other command."""
    texts = [
        "".join(_OUTSIDE if one.unknown else one.text for one in word.pieces) or (word.text or "")
        for word in words
    ]
    if texts[:1] != ["helm"] or not {*texts[1:2]} & {*_INSTALLS}:
        return []
    values: dict[str, object] = {}
    said: dict[str, object] = {}
    others: list[str] = []
    named: list[Path] = []
    at = 2
    while at < len(texts):
        option, equals, given = texts[at].partition("=")
        if option in (*_FILES, *_SETS) and not equals:
            at, given = at + 1, texts[at + 1] if at + 1 < len(texts) else ""
        if option in _FILES:
            for file in filter(None, (_near(path, one) for one in given.split(","))):
                named.append(file)
                text = reading.read_text(file, LARGEST, LaunchError)
                values = overlaid(values, values_in(text, file.name))
        elif option in _SETS:
            for name, text in _PAIR.findall(given):
                place = _near(path, text) if option == "--set-file" else None
                own = reading.read_text(place, LARGEST, LaunchError) if place else _value(text)
                said = overlaid(said, _below(name, own))
        elif option.startswith("-"):
            at += not equals and option not in _FLAGS
        else:
            others.append(texts[at])
        at += 1
    charts = (_near(path, one) for one in others[::-1])
    chart = next((one for one in charts if one is not None and one.is_dir()), None)
    if chart is not None and (around := chart_around(chart)) is not None:
        below = overlaid(values_of(around), values)
        return in_chart(around, overlaid(values, _kept(said, below)), read)
    return [
        (file, one)
        for file in named[-1:]
        for one in read(file, reading.read_text(file, LARGEST, LaunchError))
    ]


def applied(
    path: Path, words: Sequence[Word], script: Script, read: Reader
) -> list[tuple[Path, Found]]:
    """What a command of Kubernetes applies: a text that the script hands it, or a file that it
    writes or that stands near; nothing of any other command."""
    texts = [word.text or "" for word in words]
    if texts[:1] not in (["kubectl"], ["oc"]) or not {*texts[1:]} & {*_APPLIES}:
        return []
    named = [text for option, text in pairwise(texts) if option in _APPLIED]
    named += [text.partition("=")[2] for text in texts if text.startswith("--filename=")]
    found: list[tuple[Path, Found]] = []
    for name in named:
        line = words[0].line
        handed = (d for key, d in script.files.items() if key.startswith("<<") and d.line > line)
        own = next(handed, None) if name == "-" else script.files.get(name.removeprefix("./"))
        if own is not None:
            text = "\n" * (own.line - 1) + own.text
            found += [(path, replace(one, text=script.text)) for one in read(path, text)]
        elif (file := _near(path, name)) is not None and file.is_file():
            text = reading.read_text(file, LARGEST, LaunchError)
            found += [(file, one) for one in read(file, text)]
    return found


def _near(path: Path, name: str) -> Path | None:
    """A file or folder that a command names, in the folder of its file or above it."""
    plain = name.rpartition(f"{_OUTSIDE}/")[2].strip("\"'").removeprefix("./")
    if not plain or _OUTSIDE in plain or plain.startswith("/") or ".." in Path(plain).parts:
        return None
    for folder in path.absolute().parents[:MOST_ABOVE]:
        with suppress(OSError):
            if (folder / plain).exists():
                return folder / plain
    return None


def _kept(said: Mapping[str, object], own: Mapping[str, object]) -> dict[str, object]:
    """Values without those of which text alone tells nothing where a number is there already."""
    found: dict[str, object] = {}
    for key, value in said.items():
        other = own.get(key)
        if isinstance(value, Mapping):
            found[key] = _kept(value, other if isinstance(other, Mapping) else {})
        elif value != _OUTSIDE or not isinstance(other, int | float):
            found[key] = value
    return found


def _value(text: str) -> object:
    """A value of ``--set``."""
    known = {"true": True, "false": False, "null": None}
    plain = text.replace("\\", "").strip("\"'")
    if plain in known:
        return known[plain]
    return int(plain) if plain.isdecimal() and len(plain) < 19 else plain


def _below(name: str, value: object) -> dict[str, object]:
    """``a.b[0].c`` as values; a place in a list stands for the whole of it."""
    first, dot, rest = re.sub(r"\\\.", "\0", name).partition(".")
    key, _, index = first.replace("\0", ".").partition("[")
    inner = _below(rest.replace("\0", "\\."), value) if dot else value
    return {key: [inner] if index else inner}


def _placed(
    one: Found, path: Path, places: Sequence[tuple[Path, int]], text: str, notes: tuple[str, ...]
) -> Found:
    """What is read of a filled template, with the lines of the template itself."""

    def line_of(line: int) -> int:
        return places[min(max(line, 1), len(places)) - 1][1]

    def moved(given: Given) -> Given:
        spans = (None,) * len(given.texts)
        return replace(given, line=line_of(given.line), spans=spans, whole=None)

    lines: dict[int, str] = {}
    for (own, at), filled in zip(places, text.split("\n"), strict=False):
        if own == path:
            lines[at] = f"{lines.get(at, '')}{filled} "
    whole = "\n".join(lines.get(at, "") for at in range(1, max(lines, default=0) + 1))
    return replace(
        one,
        name=path.name,
        text=whole,
        line=line_of(one.line),
        options={name: moved(given) for name, given in one.options.items()},
        unknown=tuple(map(moved, one.unknown)),
        positional=tuple(map(moved, one.positional)),
        environment={name: moved(given) for name, given in one.environment.items()},
        notes=(*one.notes, *notes),
    )


CONFIG = "LLMConfig"
_SERVICE = "RayService"
_POOLS = ("prefill_config", "decode_config")
_SPLITS = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "tp_size")


def configs_of(text: str, name: str) -> Iterator[tuple[Call, str]]:
    """The models that a YAML text serves, each with its pool: ``prefill``, ``decode`` or "".

    Raises
    ------
    LaunchError
        It is no YAML, or a replica takes more GPUs than the workers of its cluster have.
    """
    for document in documents(text, name):
        if document.get("kind").text == _SERVICE:
            yield from _of_service(document.get("spec"), text, name)
        else:
            yield from _of_applications(document)
            if document.get("model_loading_config").is_mapping:
                yield _config(document), ""


def _of_applications(document: Place) -> Iterator[tuple[Call, str]]:
    for application in document.get("applications").entries():
        arguments = application.get("args")
        for place in (*arguments.get("llm_configs").entries(), arguments.get("llm_config")):
            if place.is_mapping:
                yield _config(place), ""
        for key in _POOLS:
            if arguments.get(key).is_mapping:
                yield _config(arguments.get(key)), key.removesuffix("_config")
        if (own := _own_application(application)) is not None:
            yield own, ""


def _own_application(application: Place) -> Call | None:
    """vLLM in an application of its own, as in ray-operator/config/samples/vllm of KubeRay 1.3.

    Its options are arguments, or variables of the environment.
    """
    arguments, variables = application.get("args"), application.get("runtime_env", "env_vars")
    given = {key.replace("-", "_"): _of_key(below) for key, below in arguments.items()}
    known = OptionTable.load("vllm").options & {f"--{key.replace('_', '-')}" for key in given}
    kwargs = given if {"--model"} < known else {}
    for name, option in keys_of("ray serve").items():
        if (text := variables.get(name).text) is not None:
            kwargs = {**kwargs, option: int(text) if text.isdigit() else text}
    if "model" not in kwargs:
        return None
    deployed = next(iter(application.get("deployments").entries()), Place.nothing(application))
    config = {"model_source": kwargs.pop("model"), "engine_kwargs": kwargs}
    return replace(_config(application), given={**config, "deployment_config": _of_key(deployed)})


def _of_service(spec: Place, text: str, name: str) -> Iterator[tuple[Call, str]]:
    """The text within the manifest, on the GPUs of its groups of workers."""
    inner = spec.get("serveConfigV2").node
    if inner is None:
        return
    within = inner.text
    if text[inner.start : inner.start + 1] == "|":  # its lines are those of the file
        start = text.find("\n", inner.start, inner.end) + 1
        within = "\n" * text.count("\n", 0, start) + text[start : inner.end]
    groups = spec.get("rayClusterConfig", "workerGroupSpecs").entries()
    gpus, kind = 0, None
    for group in groups:
        kind = kind or gpu_of_nodes(group.get("template", "spec"))
        each = [gpu_limit(one) for one in group.get("template", "spec", "containers").entries()]
        of_pod = sum(int(one.single or 0) for one in each if one and (one.single or "").isdigit())
        counts = [group.get(key).text or "1" for key in ("numOfHosts", "replicas", "maxReplicas")]
        hosts, *pods = (int(one) if one.isdigit() else 1 for one in counts)
        gpus += of_pod * hosts * max(pods)
    for document in documents(within, name):
        for config, pool in _of_applications(document):
            kwargs = config.given.get("engine_kwargs")
            sizes = [kwargs.get(split) for split in _SPLITS] if isinstance(kwargs, dict) else []
            takes = prod(size for size in sizes if isinstance(size, int))
            if 0 < gpus < takes:
                raise LaunchError(
                    f"{name}:{config.line}: a replica takes {takes} GPUs, and the groups of "
                    f"workers have {gpus} at most: change one of them."
                )
            own = {"accelerator_type": kind} if kind else {}
            yield replace(config, given={**own, **config.given}), pool


def _config(place: Place) -> Call:
    return Call(
        name=CONFIG,
        line=place.line,
        given={key: _of_key(below) for key, below in place.items()},
        lines={key: below.line for key, below in place.items()},
    )


def _of_key(place: Place) -> Value:
    """What a program would have in place of it."""
    if place.is_mapping:
        return {key: _of_key(below) for key, below in place.items()}
    if place.node is not None and place.node.kind == "list":
        return [_of_key(below) for below in place.entries()]
    if place.node is not None and place.node.unknown:
        return Untold(why=place.node.unknown)
    return None if place.node is None else place.node.value

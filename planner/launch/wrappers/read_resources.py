"""Nodes and GPUs of a job, from the options of launchers and schedulers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path

from planner.base.records import record
from planner.documents.shell import Directive, HereDocument, Word
from planner.documents.shell.edits import ParsedOption, Span
from planner.launch.option_table import option_aliases, shipped_rows
from planner.launch.read.parsed_launch import JobResources
from planner.specs.file_cache import cache_by_files
from planner.specs.spec_paths import (
    CloudInstance,
    SpecKind,
    cloud_instances,
    gpus_by_name,
    named_gpu,
    names,
)

_COUNT = re.compile(r"(?:([A-Za-z][\w.-]*):)?(?:([A-Za-z][\w.-]*):)?(\d+)(?:\(.*\))?")
_GRES = re.compile(r"gpu(?::[A-Za-z_][\w.-]*)?:(\d+)|gpu:([A-Za-z_][\w.-]*)|gpu\b")
_SLOTS = re.compile(r"(?:\bslots\s*=\s*|:)(\d+)")
_FEATURE = re.compile(r"\b[A-Za-z]+\d+[\w-]*")
_CONSTRAINTS = ("-C", "--constraint")
_KIND = re.compile(r"gpu:([A-Za-z_][\w.-]*)")

# Field of the resources by the usual name of a launcher's option.
NODES, PER_NODE, TOTAL, TASKS, TASKS_PER_NODE, PER_TASK = (
    "num_nodes", "gpus_per_node", "num_gpus", "tasks", "tasks_per_node", "gpus_per_task",
)  # fmt: skip
OPTIONS: dict[str, dict[str, str]] = {}
for _row in shipped_rows("wrappers/options.csv"):
    OPTIONS.setdefault(_row["launcher"], {})[_row["option"]] = _row["says"]
"""What options of launchers say, by launcher."""


@record(kw_only=True)
class LauncherResources:
    """Resources that one launcher or scheduler requests; ``kind`` is its name."""

    kind: str
    fields: Mapping[str, ParsedOption]
    gpu: str | None = None

    def number(self, name: str) -> int | None:
        """A field as a number; None if missing or not readable."""
        option = self.fields.get(name)
        text = option.texts[0] if option is not None else None
        return int(text) if text is not None and text.isdecimal() else None


def launcher_resources(kind: str, options: Iterable[tuple[str, Word | None]]) -> LauncherResources:
    """Return the nodes and GPUs that a launcher's options request; skip other options."""
    table = OPTIONS.get(kind, {})
    fields: dict[str, ParsedOption] = {}
    gpu: str | None = None
    for name, word in options:
        option_name = name if name in table else name.replace("_", "-")
        if kind == "deepspeed" and name in ("-i", "--include") and word is not None:
            fields.update(_included_hosts(name, word))
        if kind == "slurm" and name in _CONSTRAINTS and word is not None:
            gpu = gpu or _constraint(word.text)
        if option_name not in table or word is None:
            continue
        gpu = _gpu_type(word.text) or gpu
        if (option := _resource_option(name, word, table[option_name])) is not None:
            fields[table[option_name]] = option
    return LauncherResources(kind=kind, fields=fields, gpu=gpu)


def scheduler_resources(directives: Sequence[Directive]) -> LauncherResources:
    """Return the nodes and GPUs that scheduler directives at the head of a script request."""
    fields: dict[str, ParsedOption] = {}
    options: dict[str, list[tuple[str, Word]]] = {"slurm": [], "bsub": []}
    for directive in directives:
        text, span = directive.text, directive.span
        word = Word(text=text, span=span, line=directive.line, raw=text)
        if kind := {"SBATCH": "slurm", "BSUB": "bsub"}.get(directive.kind):
            options[kind].append((directive.option, word))
        elif directive.kind == "PBS" and directive.option == "-l":
            fields.update(_pbs_resources(directive))
    layers = [launcher_resources(kind, of_kind) for kind, of_kind in options.items()]
    for layer in layers:
        fields.update(layer.fields)
    gpu = next((layer.gpu for layer in layers if layer.gpu), None)
    return LauncherResources(kind="slurm", fields=fields, gpu=gpu)


def combine_resources(
    layers: Sequence[LauncherResources], devices: ParsedOption | None = None
) -> JobResources:
    """Combine the resources of launchers, outermost first; inner launchers take precedence.

    ``devices`` is the number of GPUs per node in CUDA_VISIBLE_DEVICES, used if no launcher has it.
    """
    fields: dict[str, ParsedOption] = {}
    for layer in layers:
        for name in (NODES, PER_NODE, TOTAL):
            option = layer.fields.get(name)
            if option is None:
                continue
            # Prefer an option that can be changed in the file over a computed one.
            previous = fields.get(name)
            if previous is not None and (
                (previous.texts == option.texts and option.spans == (None,))
                or option.texts == (None,)
            ):
                continue
            fields[name] = option
            if name in (NODES, PER_NODE) and layer.kind != "slurm" and TOTAL in fields:
                fields.pop(TOTAL)
    ranks = next(
        (launcher for launcher in reversed(layers) if launcher.kind in ("slurm", "mpi")), None
    )
    is_by_rank = not any(
        launcher.kind in ("torchrun", "deepspeed", "accelerate") for launcher in layers
    )
    if ranks is not None and is_by_rank:
        if PER_NODE not in fields and (ranks.number(TASKS_PER_NODE) or 1) > 1:
            fields[PER_NODE] = ranks.fields[TASKS_PER_NODE]
        if PER_NODE not in fields and TOTAL not in fields and (ranks.number(TASKS) or 1) > 1:
            fields[TOTAL] = ranks.fields[TASKS]
    if PER_NODE not in fields and TOTAL not in fields and devices is not None:
        fields[PER_NODE] = devices
    gpus = [layer.gpu for layer in layers if layer.gpu]
    return JobResources(
        num_nodes=fields.get(NODES),
        gpus_per_node=fields.get(PER_NODE),
        num_gpus=fields.get(TOTAL),
        gpu=gpus[-1] if gpus else None,
    )


def conflict_of(layers: Sequence[LauncherResources]) -> str:
    """Return why a launcher requests more than its scheduler allocates; empty if it does not."""
    for outer, inner in combinations(layers, 2):
        allocated, requested = outer.number(PER_NODE), inner.number(PER_NODE)
        if allocated is not None and requested is not None and requested > allocated:
            return _conflict_message(
                inner.fields[PER_NODE], outer.fields[PER_NODE], "GPUs of a node"
            )
        nodes, requested_nodes = outer.number(NODES), inner.number(NODES)
        if nodes is not None and requested_nodes is not None and requested_nodes > nodes:
            return _conflict_message(inner.fields[NODES], outer.fields[NODES], "nodes")
        if allocated and nodes and (total := inner.number(TOTAL)) and total > allocated * nodes:
            return _conflict_message(
                inner.fields[TOTAL], outer.fields[NODES], "GPUs", f"{allocated * nodes}"
            )
    for layer in layers:
        tasks, allocated = layer.number(TASKS_PER_NODE), layer.number(PER_NODE)
        if layer.kind == "slurm" and tasks and allocated and tasks > allocated and len(layers) == 1:
            return _conflict_message(
                layer.fields[TASKS_PER_NODE], layer.fields[PER_NODE], "GPUs of a node"
            )
    return ""


def _conflict_message(
    requested: ParsedOption, allocated: ParsedOption, unit: str, number: str = ""
) -> str:
    """Return an error message: a launcher requests more ``unit`` than the scheduler allocates."""
    return (
        f"line {requested.line}: {requested.option} {requested.texts[0]} is more than the "
        f"{number or allocated.texts[0]} {unit} of {allocated.option} on line {allocated.line}."
    )


def _constraint(text: str | None) -> str | None:
    """The first feature of nodes that looks like the name of a GPU: ``a100`` of ``ib&a100``."""
    match = _FEATURE.search(text or "")
    return match[0] if match else None


def _gpu_type(text: str | None) -> str | None:
    """Return the GPU type in ``gpu:h100:8`` or ``h100:8``; None if there is none."""
    if not text:
        return None
    if match := _KIND.search(text):
        return match[1]
    head, colon, count = text.partition(":")
    is_name = re.fullmatch(r"[A-Za-z][\w-]*", head) is not None and head != "gpu"
    return head if colon and count.isdecimal() and is_name else None


def _resource_option(option: str, word: Word, field: str) -> ParsedOption | None:
    """Return the number in a resource value, such as ``8``, ``h100:8`` or ``ppr:8:node``.

    The text is None, with a reason, if the value sets no number; None if it sets no resource.
    """
    if word.text is None:
        return _make_option(option, word, None, None, word.unknown)
    text = word.text.strip().strip("\"'")
    shift = word.text.find(text)
    if field in (NODES,) and re.fullmatch(r"\d+[:-]\d+", text):
        first, last = re.split("[:-]", text)
        if first != last:
            return _make_option(
                option, word, None, None, f"{option} {text} does not set the number"
            )
        text = first
    if option == "--map-by":
        if (match := re.match(r"ppr:(\d+):node", text)) is None:
            return None
        return _part(option, word, match.span(1), shift)
    if option == "--gres":
        match = _GRES.search(text)
        if match is None:
            return None
        return (
            _part(option, word, match.span(1), shift)
            if match[1]
            else _make_option(option, word, "1", None)
        )
    if text.startswith("device="):
        return _devices(option, word, text.removeprefix("device="))
    if (match := _COUNT.fullmatch(text)) is not None:
        return _part(option, word, match.span(3), shift)
    if text.isdecimal():
        return _part(option, word, (0, len(text)), shift)
    if text in ("gpu", "auto", "cpu", "all"):
        reason = f"{option} {text} uses what the machine has"
        return _make_option(option, word, None, None, reason)
    return _make_option(option, word, None, None, f"{option} {text} is not a number")


def _part(option: str, word: Word, position: tuple[int, int], shift: int) -> ParsedOption:
    """Return an option with the characters at ``position`` of a word, shifted by ``shift``."""
    text = (word.text or "")[position[0] + shift : position[1] + shift]
    span = word.span
    if span is not None and span.end - span.start == len(word.text or ""):
        span = Span(span.start + shift + position[0], span.start + shift + position[1])
    elif (word.text or "") != text:
        span = None
    return _make_option(option, word, text, span)


def _devices(option: str, word: Word, text: str) -> ParsedOption:
    return _make_option(option, word, str(len([part for part in text.split(",") if part])), None)


def visible_device_count(word: Word) -> ParsedOption | None:
    """Number of GPUs in CUDA_VISIBLE_DEVICES."""
    if not word.text or word.text.strip() in ("", "-1", "all", "none", "void"):
        return None
    return _devices("CUDA_VISIBLE_DEVICES", word, word.text)


def _make_option(
    option: str, word: Word, text: str | None, span: Span | None, unknown: str = ""
) -> ParsedOption:
    """Return an option with one text at a position; None: text or position unknown."""
    return ParsedOption(
        option=option, texts=(text,), line=word.line, spans=(span,), full_span=None, unknown=unknown
    )


def _included_hosts(option: str, word: Word) -> dict[str, ParsedOption]:
    """Return nodes and GPUs per node from DeepSpeed's ``worker-0@worker-1:0,2``."""
    if word.text is None:
        return {}
    hosts = [host for host in word.text.split("@") if host]
    slots = [len(host.partition(":")[2].split(",")) for host in hosts if ":" in host]
    fields = {NODES: _make_option(option, word, str(len(hosts)), None)}
    if slots and len(slots) == len(hosts) and len(set(slots)) == 1:
        fields[PER_NODE] = _make_option(option, word, str(slots[0]), None)
    return fields


def parse_hosts(
    kind: str, option: str, word: Word, host_file: HereDocument | None
) -> LauncherResources:
    """Return nodes and GPUs of a host list ``a:8,b:8``, or of a file with lines ``a slots=8``."""
    names = (word.text or "").split(",")
    if host_file is not None:
        lines = (line.partition("#")[0].strip() for line in host_file.text.splitlines())
        names = [line for line in lines if line]
    slots = [match[1] for name in names if (match := _SLOTS.search(name))]
    fields = {NODES: _make_option(option, word, str(len(names)), None)}
    if len(slots) == len(names) and len(set(slots)) == 1:
        fields[PER_NODE] = _make_option(option, word, slots[0], None)
    return LauncherResources(kind=kind, fields=fields)


def _pbs_resources(directive: Directive) -> dict[str, ParsedOption]:
    """Return nodes and GPUs per node from ``select=4:ngpus=8`` or ``nodes=4:gpus=8`` of PBS."""
    fields = {}
    for field, words in ((NODES, "select|nodes"), (PER_NODE, "ngpus|gpus")):
        if match := re.search(rf"(?:^|[:,])(?:{words})=(\d+)", directive.text):
            start = directive.span.start
            fields[field] = ParsedOption(
                option="-l", texts=(match[1],), line=directive.line, full_span=None,
                spans=(Span(start + match.start(1), start + match.end(1)),),
            )  # fmt: skip
    return fields


_MAKERS = re.compile(r"^(?:nvidia|tesla|geforce|amd|instinct|gpu)-")
# Another card than the one that the name begins with.
_OTHER_CARD = re.compile(r"^-?(?:ti|super|laptop|mobile|max-q|d|xt)\b")
_SIZE = re.compile(r"^[^\n]{0,12}?(?<!\d)(\d{2,3})\s?gi?b", re.IGNORECASE)
_PCIE = re.compile(r"^[^\n]{0,12}?pcie", re.IGNORECASE)
# Shorter words, and bare numbers, mean other things in a text more often than a GPU.
_SHORTEST = 3
_IN_VARIABLE = re.compile(r"[A-Z]_$")  # the name of a variable, such as ENABLE_P40


INSTANCES: Mapping[str, CloudInstance] = cloud_instances()
"""Types of machines of clouds by their names, in lower case."""


@record(kw_only=True)
class NamedGpu:
    """A GPU that a text names, the word for it, and the GPUs of its machine if specified."""

    gpu: str
    word: str
    gpus_per_node: int | None = None


def parse_gpu_name(word: str, folder: Path | None = None) -> str | None:
    """Return the GPU that a scheduler, node label or ``nvidia-smi`` names; None if unknown."""
    if (gpu := named_gpu(word, gpus_by_name(folder))) is not None:
        return gpu
    aliases = gpus_by_name(folder)
    normalized = re.sub(r"[\s_]+", "-", word.strip().lower())
    while stripped := _MAKERS.match(normalized):
        normalized = normalized[stripped.end() :]
    match = _pattern(folder).match(normalized)
    if match is not None and _OTHER_CARD.match(normalized[match.end() :]):
        return None
    if match is None:  # for a short name its first part, as in l4-vws
        return aliases.get(normalized.partition("-")[0])
    return _of_size(match[0], normalized[match.end() :], folder)


def gpus_in_text(
    text: str, path: Path, folder: Path | None = None, near: str = ""
) -> tuple[NamedGpu, ...]:
    """Return the GPUs that a file names in its text, else in its path, the likeliest first.

    A cloud instance type counts before names of GPUs. Among these the most frequent counts, and
    names in ``near``, the text around the started program, count first.
    """
    for sources in ((near, text), (str(path),)):
        for word in re.findall(r"[\w.-]+", "\n".join(sources).lower()):
            if (instance := INSTANCES.get(word.strip(".-"))) is not None:
                return (NamedGpu(gpu=instance.gpu, word=word, gpus_per_node=instance.gpus),)
        words_by_gpu: dict[str, str] = {}
        for source in sources:
            counts: Counter[str] = Counter()
            spellings: dict[str, str] = {}
            for match in _pattern(folder).finditer(source.lower()):
                if _IN_VARIABLE.search(source[max(match.start() - 2, 0) : match.start()]):
                    continue
                gpu = _of_size(match[0], source[match.end() : match.end() + 20], folder)
                counts[gpu] += 1
                spellings.setdefault(gpu, match[0])
            words_by_gpu = {
                **words_by_gpu,
                **{
                    gpu: spellings[gpu]
                    for gpu, _ in counts.most_common()
                    if gpu not in words_by_gpu
                },
            }
        if words_by_gpu:
            return tuple(NamedGpu(gpu=gpu, word=word) for gpu, word in words_by_gpu.items())
    if "nvidia" in text.lower():  # machines of several vendors
        return ()
    # The GPU that is assumed where a text names only the software of its vendor.
    patterns = option_aliases("software of a vendor").items()
    matches = ((gpu, re.search(pattern, text)) for pattern, gpu in patterns)
    return tuple(NamedGpu(gpu=gpu, word=word[0]) for gpu, word in matches if word)[:1]


def _of_size(word: str, following: str, folder: Path | None) -> str:
    """Return the GPU that a name means; memory and form after the name choose its variant."""
    normalized, aliases = re.sub(r"[\s_]+", "-", word), gpus_by_name(folder)
    while normalized not in aliases and (stripped := _MAKERS.match(normalized)):
        normalized = normalized[stripped.end() :]
    gpu = aliases[normalized]
    listed_size, size = re.search(r"-(\d+)gb$", gpu), _SIZE.match(following)
    form = "pcie" if _PCIE.match(following) else ""
    if size is None and (listed_size is None or not form):
        return gpu
    memory = next(match[1] for match in (size, listed_size) if match is not None)
    family = f"{gpu.partition('-')[0]}-"
    same = [
        name
        for name in (gpu, *names(SpecKind.GPUS, folder))
        if name.startswith(family) and name.endswith(f"-{memory}gb")
    ]
    default = [name for name in same if (form or "sxm") in name]
    return next(iter((*default, *same)), gpu)


@cache_by_files
def _pattern(folder: Path | None) -> re.Pattern[str]:
    """Return a regular expression for GPU names and aliases in lower case; dashes may be blanks."""
    words = [
        word
        for word in gpus_by_name(folder)
        if len(word) >= _SHORTEST and not word.isdigit() and re.search(r"\d", word)
    ]
    parts = [re.escape(word).replace(r"\-", "[-_ ]?") for word in sorted(words, key=len)[::-1]]
    # A short word is unambiguous with its vendor: Tesla T4, nvidia-l4.
    short_names = [word for word in gpus_by_name(folder) if re.fullmatch(r"[a-z]\d", word)]
    parts += [rf"(?:tesla|nvidia)(?:[-_ ]tesla)?[-_ ]{word}" for word in short_names]
    return re.compile(rf"(?:(?<![a-z0-9.])|(?<=\d[x*]))(?:{'|'.join(parts)})(?![a-z0-9])")

"""The form of a question: its fields, what nobody gave and was assumed, and sliders of a plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from planner.base.enums import ComputePrecision, Quantization
from planner.base.records import record
from planner.launch import SCRIPT, TARGETS, WRAPPERS
from planner.question.terms import Term, terms_of
from planner.specs.catalogue import Catalogue
from planner.specs.price import CONTRACTS
from planner.specs.spec_paths import SpecKind
from planner.sweeps.plan import SPECS
from planner.ui.question import (
    AGAINST,
    FILE,
    OBJECTIVES,
    PRECISION,
    PRICES,
    SETTINGS,
    TARGET,
    THINGS,
    WRAPPER,
    Question,
    fields_of,
    is_file,
    option_of,
)
from planner.workloads.registry import workload_of

FIRST = "first"
"""The group of fields that are always seen: the usual ones, and what was given."""

_FORM_TITLES = {
    FIRST: "",
    "question": "The work",
    "hardware": "Hardware and software",
    "money": "Money, failures, energy",
    "limits": "Limits",
    "search": "The configuration",
}
_LISTS = {**SPECS, "draft_model": SpecKind.MODELS, "reliability": SpecKind.RELIABILITY}
_TITLED = {
    PRECISION: ("number format of the matrix products, several, or all", "search"),
    SETTINGS: ("parameters that are pinned or narrowed, such as tp=4,8 mbs=1", "search"),
    OBJECTIVES: ("what is best: one to three names", "search"),
    THINGS: ("two or more GPUs, models, frameworks or engines, by name", FIRST),
    AGAINST: ("what another plan sets otherwise, such as tp=4 zero=3", FIRST),
    TARGET: ("the tool whose files are written", FIRST),
    WRAPPER: ("what starts it", FIRST),
    FILE: (
        "a launch script, recipe, plan or config.json of yours, with the files it names; "
        "read, never run",
        FIRST,
    ),
}
_LONG = "long"
_LINES = (SETTINGS, OBJECTIVES, PRICES, FILE, THINGS, AGAINST)
_EXAMPLES = {
    "second": "30s, 2h, 30d",
    "byte": "4GiB",
    "usd": "2M",
    "watt": "800kW",
    "kg": "10t",
    "share": "0.9",
    SETTINGS: "tp=4,8 mbs=1",
    OBJECTIVES: "throughput,memory_headroom",
    PRICES: "h100 reserved-1y=1.9, b200=4",
    THINGS: "h100,b200,mi300x",
    AGAINST: "tp=4 zero=3",
    WRAPPER: SCRIPT,
}
_PRICES_TITLE = "own prices, USD per GPU and hour: GPU=USD or GPU CONTRACT=USD, several with commas"
_LISTED = ("contract", PRECISION, OBJECTIVES, THINGS, TARGET, WRAPPER, *_LISTS)


@record(kw_only=True)
class Field:
    """A field of a form: the text that it has, what may be chosen, what its option is called.

    ``is_long``: it needs a line for itself; ``assumed`` is what an answer took where it is empty;
    of several files that are uploaded the first ends as its ``example`` does.
    """

    name: str
    option: str
    label: str
    title: str
    value: str
    example: str
    is_flag: bool
    is_file: bool
    is_long: bool
    choices: str
    assumed: str

    @property
    def took(self) -> str:
        """What was assumed in short, without why."""
        words = self.assumed.partition(" (")[0]
        return words if len(words) <= _SHORT else f"{words[: _SHORT - 1].rstrip(' ,')}..."


@record(kw_only=True)
class FieldGroup:
    """Fields that are seen or opened together."""

    name: str
    title: str
    fields: Sequence[Field]

    @property
    def assumed(self) -> Sequence[Field]:
        """The fields for which an answer assumed something."""
        return [field for field in self.fields if field.assumed and not field.value]


def groups_of(
    question: Question, assumed: Mapping[str, str] | None = None, plan: Question | None = None
) -> list[FieldGroup]:
    """The fields of a question's command, in groups, with what it answers.

    ``assumed`` is what an answer took by name; a ``plan`` shows what a launch file says.
    """
    found: dict[str, list[Field]] = {name: [] for name in _FORM_TITLES}
    asked = {question.workload, question.command}
    took = assumed or {}
    said = plan.fields if plan is not None and FILE in question.fields else {}
    for name, term in fields_of(question.command, question.workload).items():
        group = _TITLED[name][1] if term is None else term.group
        value = question.fields.get(name, "")
        is_first = bool(value) or (term is not None and bool(asked & {*term.form}))
        place = FIRST if is_first else group if group in found else "question"
        made = _field(name, term, value, took.get(name, ""))
        found[place].append(replace(made, example=said.get(name) or made.example))
    return [
        FieldGroup(
            name=name,
            title=_FORM_TITLES[name],
            fields=sorted(fields, key=lambda field: name != FIRST and not field.assumed),
        )
        for name, fields in found.items()
        if fields
    ]


def _field(name: str, term: Term | None, value: str, assumed: str) -> Field:
    title = _TITLED[name][0] if term is None else term.description
    kind = "" if term is None else term.type
    limit = ""
    if term is not None and "limit" in term.kind and "question" not in term.kind:
        limit = "at most: " if term.sign > 0 else "at least: "
    words = _LABELS.get(name) or name.replace("_", " ").replace("num gpus", "number of GPUs")
    words = words.replace("gpu", "GPU") if words in ("gpu", "prefill gpu", "max gpus") else words
    is_limit = term is not None and "limit" in term.kind and "question" not in term.kind
    side = "" if not is_limit or term is None else (" at most" if term.sign > 0 else " at least")
    return Field(
        name=name,
        option=option_of(name),
        label=f"{words}{side}",
        title=_PRICES_TITLE if name == PRICES else f"{limit}{title}",
        value=value,
        example=_EXAMPLES.get(name)
        or (term and term.example)
        or _EXAMPLES.get(kind)
        or (term.default if term else ""),
        is_flag=kind == "flag",
        is_file=is_file(name),
        is_long=name in _LINES or (term is not None and _LONG in term.form),
        choices=name if name in _LISTED else "",
        assumed=assumed,
    )


_LABELS = {
    FILE: "your file",
    PRICES: "own prices",
    THINGS: "compare",
    AGAINST: "against",
    TARGET: "files for",
    WRAPPER: "started by",
}


@cache
def choices(specs: Path | None, workload: str) -> Mapping[str, Sequence[str]]:
    """What fields propose: names of specs, contracts, formats, objectives."""
    catalogue = Catalogue(specs)
    lists: dict[str, Sequence[str]] = {n: catalogue.names(kind) for n, kind in _LISTS.items()}
    formats = ComputePrecision if workload == "train" else Quantization
    return lists | {
        "contract": CONTRACTS,
        PRECISION: [one.word for one in formats],
        OBJECTIVES: [*terms_of(workload, "objective")],
        THINGS: [*lists["gpu"], *lists["model"]],
        TARGET: TARGETS,
        WRAPPER: WRAPPERS,
    }


@record(kw_only=True)
class Slider:
    """A number or word of a plan that can be moved; ``at`` is the place of its value.

    ``is_setting``: it goes into the settings, else into a field of its name.
    """

    name: str
    label: str
    title: str
    values: Sequence[str]
    at: int
    is_setting: bool


_SHORT = 32
_MOST_SLIDERS = 13
_DOUBLINGS = 3
_UP = 4


def sliders_of(plan: Question) -> list[Slider]:
    """What of a plan can be moved: its GPUs, its degrees and batches, its load."""
    return [*_sliders(plan)][:_MOST_SLIDERS]


def _sliders(plan: Question) -> Iterator[Slider]:
    pinned = {name: values[0] for name, values in plan.settings.items()}
    has_batch = bool(workload_of(plan.workload).batch)
    for name, term in terms_of(plan.workload, "parameter").items():
        short = term.short or name
        own = plan.fields.get(name) or pinned.get(short)
        if term.codes is not None and (term.remedies or term.is_level):
            words = [str(term.shown(code)) for code in term.codes]
            value = own or (words[0] if not term.plain else str(term.plain))
        elif term.type == "count" and (term.remedies or own):
            value = own or str(term.plain or "")
            if not value.isdecimal():
                continue
            words = [str(number) for number in _around(int(value), is_full=name != "num_gpus")]
            if name == "micro_batch_size" and not has_batch:  # as large as lengths ask
                continue
        else:
            continue
        if value in words and len(words) > 1:
            label = "number of GPUs" if name == "num_gpus" else name.replace("_", " ")
            yield Slider(
                name=name if name in plan.fields else short,
                label=label,
                title=term.description,
                values=words,
                at=words.index(value),
                is_setting=name not in plan.fields,
            )
    for name, term in terms_of(plan.workload, "question").items():
        value = plan.fields.get(name, "")
        is_load = plan.workload in term.form and term.type in ("count", "1/s")
        if is_load and value.isdecimal() and name not in terms_of(plan.workload, "parameter"):
            words = [str(number) for number in _around(int(value), is_full=False)]
            yield Slider(
                name=name, label=name.replace("_", " "), title=term.description, values=words,
                at=words.index(value), is_setting=False,
            )  # fmt: skip


def _around(value: int, *, is_full: bool) -> list[int]:
    """A number among its doublings and halves; ``is_full``: from 1 on."""
    low = 1 if is_full else max(value >> _DOUBLINGS, 1)
    top = max(_UP * value, 8) if is_full else value << _DOUBLINGS
    found, one = {value}, low
    while one <= top:
        found.add(one)
        one *= 2
    return sorted(found)

"""The form of a command, made from the table of terms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from planner.base.enums import ComputePrecision, Quantization
from planner.base.records import record
from planner.question.terms import Term, terms_of
from planner.specs.catalogue import Catalogue
from planner.specs.paths import SpecKind
from planner.specs.price import CONTRACTS
from planner.sweeps.check import SPECS
from planner.ui.question import OBJECTIVES, PRECISION, SETTINGS, Question, fields_of, option_of

FIRST = "first"
"""The group of fields that are always seen."""

_TITLES = {
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
}
_LONG = "long"
_EXAMPLES = {
    "second": "30s, 2h, 30d",
    "byte": "4GiB",
    "usd": "2M",
    "watt": "800kW",
    "kg": "10t",
    "share": "0.9",
    SETTINGS: "tp=4,8 mbs=1",
    OBJECTIVES: "throughput,memory_headroom",
}


@record(kw_only=True)
class Field:
    """A field of a form: the text that it has, what may be chosen, what its option is called.

    ``is_long``: it needs a line for itself.
    """

    name: str
    option: str
    label: str
    title: str
    value: str
    example: str
    is_flag: bool
    is_long: bool
    choices: str


@record(kw_only=True)
class Group:
    """Fields that are seen or opened together."""

    name: str
    title: str
    fields: Sequence[Field]

    @property
    def is_open(self) -> bool:
        """Whether something in it was given."""
        return self.name == FIRST or any(field.value for field in self.fields)


def groups_of(question: Question) -> list[Group]:
    """The fields of a question's command, in groups, with what it answers."""
    found: dict[str, list[Field]] = {name: [] for name in _TITLES}
    asked = {question.workload, question.command}
    for name, term in fields_of(question.command, question.workload).items():
        group = _TITLED[name][1] if term is None else term.group
        is_first = term is not None and bool(asked & {*term.form})
        place = FIRST if is_first else group if group in found else "question"
        found[place].append(_field(name, term, question.fields.get(name, "")))
    return [
        Group(name=name, title=_TITLES[name], fields=fields)
        for name, fields in found.items()
        if fields
    ]


def _field(name: str, term: Term | None, value: str) -> Field:
    title = _TITLED[name][0] if term is None else term.description
    kind = "" if term is None else term.type
    limit = ""
    if term is not None and "limit" in term.kind and "question" not in term.kind:
        limit = "at most: " if term.sign > 0 else "at least: "
    return Field(
        name=name,
        option=option_of(name),
        label=_label(name, term),
        title=f"{limit}{title}",
        value=value,
        example=_EXAMPLES.get(name)
        or (term and term.example)
        or _EXAMPLES.get(kind)
        or (term.default if term else ""),
        is_flag=kind == "flag",
        is_long=name in (SETTINGS, OBJECTIVES) if term is None else _LONG in term.form,
        choices=name if name in _LISTS or name in ("contract", PRECISION, OBJECTIVES) else "",
    )


def _label(name: str, term: Term | None) -> str:
    words = name.replace("_", " ").replace("num gpus", "number of GPUs")
    words = words.replace("gpu", "GPU") if words in ("gpu", "prefill gpu", "max gpus") else words
    is_limit = term is not None and "limit" in term.kind and "question" not in term.kind
    side = "" if not is_limit or term is None else (" at most" if term.sign > 0 else " at least")
    return f"{words}{side}"


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
    }

"""The form of a question: its fields, the values assumed for empty ones, and sliders of a plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from planner.base.enums import ComputePrecision, Quantization
from planner.base.records import record
from planner.commands.options import FILE, OBJECTIVES, form_fields, option_name, option_rows
from planner.launch import SCRIPT, TARGETS, WRAPPERS
from planner.question.names import NUM_GPUS
from planner.question.terms import Term, glossary, terms_of
from planner.specs.catalogue import Catalogue
from planner.specs.price import CONTRACTS
from planner.specs.spec_paths import SpecKind
from planner.sweeps.plan import SPECS
from planner.ui.question import (
    AGAINST,
    PRECISION,
    PRICES,
    SETTINGS,
    TARGET,
    THINGS,
    WRAPPER,
    Question,
    field_help,
    is_file,
    is_flag,
)
from planner.workloads.registry import workload_of

FIRST = "first"
"""The group of fields that are always visible: common ones, and those with a value."""

_FORM_TITLES = {
    FIRST: "",
    "question": "The work",
    "hardware": "Hardware and software",
    "money": "Money, failures, energy",
    "limits": "Limits",
    "search": "The configuration",
}
_LISTS = {**SPECS, "draft_model": SpecKind.MODELS, "reliability": SpecKind.RELIABILITY}
_TITLES = {
    PRECISION: ("number format of the matrix products, several, or all", "search"),
    SETTINGS: ("fixed values or lists of values of parameters, such as tp=4,8 mbs=1", "search"),
    OBJECTIVES: ("objectives: one to three names", "search"),
    THINGS: ("two or more GPUs, models, frameworks or engines, by name", FIRST),
    AGAINST: ("different settings of another plan, such as tp=4 zero=3", FIRST),
    TARGET: ("the tool to write files for", FIRST),
    WRAPPER: ("the launcher", FIRST),
    FILE: (
        "your launch script, recipe, plan or config.json, with the files it names; read, never run",
        FIRST,
    ),
}
_LONG = "long"
_LONG_FIELDS = (SETTINGS, OBJECTIVES, PRICES, FILE, THINGS, AGAINST)
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
_PRICES_TITLE = "your prices in USD per GPU-hour: GPU=USD or GPU CONTRACT=USD, several with commas"
_FIELDS_WITH_CHOICES = ("contract", PRECISION, OBJECTIVES, THINGS, TARGET, WRAPPER, *_LISTS)


@record(kw_only=True)
class Field:
    """A field of a form: its text, its choices, and its option.

    ``is_long``: it needs a separate line; ``assumed`` is the value that an answer assumed because
    the field is empty; the first of several uploaded files has the suffix of ``example``.
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
    def switch(self) -> Sequence[tuple[str, str]]:
        """The values of a flag with their labels; an option of a command can only be on."""
        return [("true", "yes"), *([("false", "no")] if self.name in glossary() else [])]

    @property
    def took(self) -> str:
        """The assumed value without its reason, shortened."""
        text = self.assumed.partition(" (")[0]
        return text if len(text) <= _MAX_LABEL else f"{text[: _MAX_LABEL - 1].rstrip(' ,')}..."


@record(kw_only=True)
class FieldGroup:
    """Fields that are shown or opened together."""

    name: str
    title: str
    fields: Sequence[Field]

    @property
    def assumed(self) -> Sequence[Field]:
        """The empty fields for which an answer assumed a value."""
        return [field for field in self.fields if field.assumed and not field.value]


def field_groups(
    question: Question, assumed: Mapping[str, str] | None = None, plan: Question | None = None
) -> list[FieldGroup]:
    """Return the form fields of a question's command, by group, with their values.

    ``assumed`` are the assumed values of an answer by name; ``plan`` has the values of a launch
    file.
    """
    groups: dict[str, list[Field]] = {name: [] for name in _FORM_TITLES}
    form_names = {question.workload, question.command}
    assumed_texts = assumed or {}
    plan_texts = plan.fields if plan is not None and FILE in question.fields else {}
    for name, term in form_fields(question.command, question.workload).items():
        group = _group(name) if term is None else term.group
        value = question.fields.get(name, "")
        is_first = bool(value) or (term is not None and bool(form_names & {*term.form}))
        group_name = FIRST if is_first else group if group in groups else "question"
        form_field = _field(name, term, value, assumed_texts.get(name, ""))
        if question.command == "size" and name == NUM_GPUS:
            title = f"{form_field.title}; empty: find it"
            form_field = replace(form_field, title=title, example="empty: find it")
        groups[group_name].append(
            replace(form_field, example=plan_texts.get(name) or form_field.example)
        )
    return [
        FieldGroup(
            name=name,
            title=_FORM_TITLES[name],
            fields=sorted(fields, key=lambda field: name != FIRST and not field.assumed),
        )
        for name, fields in groups.items()
        if fields
    ]


def _group(name: str) -> str:
    """The group of a field without term."""
    return _TITLES[name][1] if name in _TITLES else option_rows()[""][name]["group"]


def _field(name: str, term: Term | None, value: str, assumed: str) -> Field:
    """Return the form field of an input with its label, description and current value.

    ``term`` is None for an input without a term, such as an uploaded file.
    """
    title = term.description if term else _TITLES.get(name, ("",))[0] or field_help(name)
    kind = "" if term is None else term.type
    limit = ""
    if term is not None and "limit" in term.kind and "question" not in term.kind:
        limit = "at most: " if term.sign > 0 else "at least: "
    label_text = _LABELS.get(name) or name.replace("_", " ").replace("num gpus", "number of GPUs")
    label_text = (
        label_text.replace("gpu", "GPU")
        if label_text in ("gpu", "prefill gpu", "max gpus")
        else label_text
    )
    is_limit = term is not None and "limit" in term.kind and "question" not in term.kind
    side = "" if not is_limit or term is None else (" at most" if term.sign > 0 else " at least")
    return Field(
        name=name,
        option=option_name(name),
        label=f"{label_text}{side}",
        title=_PRICES_TITLE if name == PRICES else f"{limit}{title}",
        value=value,
        example=_EXAMPLES.get(name)
        or (term and term.example)
        or _EXAMPLES.get(kind)
        or (term.default if term else ""),
        is_flag=is_flag(name),
        is_file=is_file(name),
        is_long=name in _LONG_FIELDS or (term is not None and _LONG in term.form),
        choices=name if name in _FIELDS_WITH_CHOICES else "",
        assumed=assumed,
    )


_LABELS = {
    FILE: "your file",
    PRICES: "your prices",
    THINGS: "compare",
    AGAINST: "against",
    TARGET: "files for",
    WRAPPER: "started by",
}


@cache
def choices(specs: Path | None, workload: str) -> Mapping[str, Sequence[str]]:
    """Return the choices of form fields: names of specs, contracts, formats, objectives."""
    catalogue = Catalogue(specs)
    lists: dict[str, Sequence[str]] = {n: catalogue.names(kind) for n, kind in _LISTS.items()}
    formats = ComputePrecision if workload == "train" else Quantization
    return lists | {
        "contract": CONTRACTS,
        PRECISION: [number_format.word for number_format in formats],
        OBJECTIVES: [*terms_of(workload, "objective")],
        THINGS: [*lists["gpu"], *lists["model"]],
        TARGET: TARGETS,
        WRAPPER: WRAPPERS,
    }


@record(kw_only=True)
class Slider:
    """A value of a plan that the user can move; ``at`` is the index of the current value.

    ``is_setting``: it belongs to the settings, else to the field of its name.
    """

    name: str
    label: str
    title: str
    values: Sequence[str]
    at: int
    is_setting: bool


_MAX_LABEL = 32
_MOST_SLIDERS = 13
_DOUBLINGS = 3
_MAX_FACTOR = 4


def plan_sliders(plan: Question) -> list[Slider]:
    """Sliders of a plan: its GPUs, degrees of parallelism, batch sizes and load."""
    return [*_sliders(plan)][:_MOST_SLIDERS]


def _sliders(plan: Question) -> Iterator[Slider]:
    """Yield sliders over the parameters and loads of a plan that can be doubled or halved."""
    pinned = {name: values[0] for name, values in plan.settings.items()}
    has_batch = bool(workload_of(plan.workload).batch)
    for name, term in terms_of(plan.workload, "parameter").items():
        abbreviation = term.short or name
        current = plan.fields.get(name) or pinned.get(abbreviation)
        if term.codes is not None and (term.remedies or term.is_level):
            options = [str(term.decode(code)) for code in term.codes]
            value = current or (options[0] if not term.default_value else str(term.default_value))
        elif term.type == "count" and (term.remedies or current):
            value = current or str(term.default_value or "")
            if not value.isdecimal():
                continue
            options = [
                str(number) for number in _doublings_around(int(value), is_full=name != "num_gpus")
            ]
            if name == "micro_batch_size" and not has_batch:  # it follows from the lengths
                continue
        else:
            continue
        if value in options and len(options) > 1:
            label = "number of GPUs" if name == "num_gpus" else name.replace("_", " ")
            yield Slider(
                name=name if name in plan.fields else abbreviation,
                label=label,
                title=term.description,
                values=options,
                at=options.index(value),
                is_setting=name not in plan.fields,
            )
    for name, term in terms_of(plan.workload, "question").items():
        value = plan.fields.get(name, "")
        is_load = plan.workload in term.form and term.type in ("count", "1/s")
        if is_load and value.isdecimal() and name not in terms_of(plan.workload, "parameter"):
            options = [str(number) for number in _doublings_around(int(value), is_full=False)]
            yield Slider(
                name=name, label=name.replace("_", " "), title=term.description, values=options,
                at=options.index(value), is_setting=False,
            )  # fmt: skip


def _doublings_around(value: int, *, is_full: bool) -> list[int]:
    """Return a number with its halves and doubles, ascending; from 1 on if ``is_full``."""
    low = 1 if is_full else max(value >> _DOUBLINGS, 1)
    top = max(_MAX_FACTOR * value, 8) if is_full else value << _DOUBLINGS
    numbers, number = {value}, low
    while number <= top:
        numbers.add(number)
        number *= 2
    return sorted(numbers)

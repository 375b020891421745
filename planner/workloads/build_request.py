"""Requests from options of the command line or arguments of Python.

``option_name`` returns the name of a term in messages: its option, or the term itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from numbers import Real
from pathlib import Path
from typing import TypeAlias

from planner.base.csv_cells import Value
from planner.base.enums import Contract
from planner.base.training_aliases import is_objective
from planner.errors import REMOVED_OPTIONS, SearchSpaceError, SpecError, did_you_mean
from planner.question.names import BUDGET, MODEL, SPACE
from planner.question.parse_values import (
    Answer,
    check_price,
    format_input,
    full_name,
    parse_choice,
    parse_int,
    parse_value,
    parse_values,
    price_of_contract,
    split_items,
    suggest_term,
    with_contract,
)
from planner.question.renamed import current_name
from planner.question.request import ALL, Answers, PlanRequest, Request, Settings
from planner.question.terms import Term, glossary, terms_about, terms_of
from planner.workloads.registry import as_workload_name, workload_of

OptionNamer: TypeAlias = Callable[[str], str]

EXHAUSTIVE = "exhaustive"
DRIVERS = (EXHAUSTIVE, "optuna")
NSGA2 = "nsga2"
SAMPLERS = (NSGA2, "tpe")
TRIALS = 2000
"""Default number of configurations that Optuna samples."""

_MOST_AT_ONCE = 10**7
_BURST_OF = ("serve",)
# Of a plan that is changed, one of them takes the place of the others.
_RUN_LENGTHS = terms_about("run_length")
_FIELDS = tuple(field.name for field in fields(Request))
_BY_OPTION = {
    option.removeprefix("--").replace("-", "_"): name
    for name in _FIELDS
    if name in glossary() and "question" in glossary()[name].kind
    for option in glossary()[name].options
}
"""Fields of a request by the names of their options."""
# Questions with answers that set rates or lengths.
_OF_TRAFFIC = {*terms_about("traffic")}
_OF_OPTUNA = ("trials", "seed", "sampler")
NEEDS = {name: tuple(term.needs.split("|")) for name, term in glossary().items() if term.needs}
"""The questions that each question needs one of to have an effect."""


def make_request(
    values: Answers, *, base: Request | None = None, option_name: OptionNamer = str
) -> Request:
    """Build a request from named values, which are parsed and checked; None: not specified.

    Fields that are not specified come from ``base``.

    Raises SpecError or SearchSpaceError if there is no model; a name is unknown or of another
    workload; a value is invalid, or has no effect without another field.
    """
    request, answers = _parse_fields(values, base, option_name)
    for name, needed in NEEDS.items():
        needed_values = (
            getattr(request, needed_name) or needed_name in answers for needed_name in needed
        )
        is_set = name in answers and answers[name] != getattr(Request, name, None)
        if is_set and not any(needed_values):
            raise SearchSpaceError(
                f"{option_name(name)} needs {' or '.join(map(option_name, needed))}."
            )
    return request


def _parse_fields(
    values: Answers, base: Request | None, option_name: OptionNamer
) -> tuple[Request, Answers]:
    """The request with parsed values, and the values that were specified by field."""
    answers = {_field_name(name): value for name, value in values.items() if value is not None}
    workload = _parse_workload(answers.pop("workload", base.workload if base else Request.workload))
    if _OF_TRAFFIC & {*answers}:
        from planner.workloads.serving.traffic import traffic_answers  # most questions have none

        questions = terms_of(workload, "question")
        traffic = traffic_answers(answers, base, option_name)
        answers = {
            **{question: traffic[question] for question in traffic if question in questions},
            **answers,
        }
    if workload == "train":
        answers |= _training_objective_answers(answers, option_name)
        answers = {name: value for name, value in answers.items() if value is not None}
    read_fields: dict[str, object] = {"workload": workload}
    option_values: dict[str, object] = {}
    set_parameters: dict[str, object] = {}
    for name, value in answers.items():
        if name == "settings":
            set_parameters = _read_settings(workload, value)
        elif name in _PARTS:
            read_fields[name] = _PARTS[name](workload, value, option_name)
        elif name in _FIELDS:
            answer = _parse_answer(glossary()[name], value, option_name(name))
            # Several values are those of a parameter; a request has one, but of GPUs any.
            is_parameter = "parameter" in glossary()[name].kind and name != "num_gpus"
            is_several = isinstance(answer, tuple) and is_parameter
            (option_values if is_several else read_fields)[name] = answer
        else:
            raise _unknown_argument_error(workload, name)
    _refuse_others(workload, read_fields, option_name)
    if "precision" in read_fields:
        _refuse_twice([workload_of(workload).precision], set_parameters)
    _refuse_twice(option_values, set_parameters)
    base_settings = base.settings if base else {}
    read_fields["settings"] = {**base_settings, **set_parameters, **option_values}
    if base is not None and set(_RUN_LENGTHS) & set(read_fields):
        base = replace(base, total_tokens=None, num_samples=None, max_steps=None)
    if base is None and "model" not in read_fields:
        raise SpecError(f"Give a model with {option_name('model')}.")
    request = (base or Request(model="")).changed(**read_fields)
    if "price" in read_fields:
        price = check_price(
            request.price, _contracts(request), option_name("price"), option_name("purchase_price")
        )
        request = replace(request, price=price)
    elif base is not None and base.price is not None and _contracts(request) != _contracts(base):
        # A price that was read before stays that of its own contract.
        price = with_contract(base.price, _contracts(base)[0])
        request = replace(request, price=price_of_contract(price, *_contracts(request)))
    return request, read_fields


def _field_name(name: str) -> str:
    """The field of a request that has this name or option; else the name itself."""
    name = current_name("key", name, _FIELDS)
    return name if name in _FIELDS else _BY_OPTION.get(name, name)


def _contracts(request: Request) -> tuple[str, ...]:
    contracts = request.contract or Contract.ON_DEMAND
    return (contracts,) if isinstance(contracts, str) else contracts


def parse_settings(assignments: Iterable[str]) -> dict[str, list[str]]:
    """Parse texts ``name=value[,value]`` of ``--set`` into lists of values by parameter.

    Raises SearchSpaceError if a text has no ``=``, no value, or repeats a parameter.
    """
    settings: dict[str, list[str]] = {}
    for text in assignments:
        name, equals, listed = text.partition("=")
        name = name.strip().replace("-", "_")
        items = [value.strip() for value in listed.split(",")]
        if not equals or not name or not all(items):
            raise SearchSpaceError(f"--set {text!r} is not name=value or name=value,value.")
        if any("=" in value for value in items):
            several = " ".join(f"--set {part.strip()}" for part in text.split(","))
            raise SearchSpaceError(f"--set takes one parameter: give {several}.")
        if name in settings:
            raise SearchSpaceError(f"--set gives {name} twice; list its values with commas.")
        settings[name] = items
    return settings


def read_request(request: Request) -> Request:
    """Parse and check all values of a request; requests of plans are returned unchanged.

    Raises SpecError or SearchSpaceError if a value is invalid, or of another workload.
    """
    if isinstance(request, PlanRequest):
        return request
    answers = {name: getattr(request, name) for name in _FIELDS}
    defaults = {field.name: field.default for field in fields(Request)}
    return _parse_fields(
        {name: value for name, value in answers.items() if value != defaults[name]}, None, str
    )[0]


def search_request(base: Request) -> Request:
    """The request of a search around a plan: number formats stay fixed, the layout is open.

    Settings that change what the model learns stay fixed, too.
    """
    if not isinstance(base, PlanRequest):
        return base
    terms = glossary()
    settings = {
        name: value
        for name, value in base.settings.items()
        if name in terms and terms[name].is_format
    }
    learning_names = terms_about("learning_setting", base.workload)
    settings |= {
        name: base.settings.get(name, terms[name].default_value) for name in learning_names
    }
    return replace(base, settings=settings)


def read_driver(values: Answers, option_name: OptionNamer = str) -> dict[str, Value]:
    """The search driver and its options by name; ``trials``, ``seed``, ``sampler`` of Optuna.

    Raises SearchSpaceError if an option is impossible, or of another driver.
    """
    options = {name: value for name, value in values.items() if value is not None}
    driver = parse_choice(options.get("driver", EXHAUSTIVE), option_name("driver"), DRIVERS)
    if driver == EXHAUSTIVE:
        for name in _OF_OPTUNA:
            if name in options:
                raise SearchSpaceError(f"{option_name(name)} needs {option_name('driver')} optuna.")
        return {"driver": driver}
    return {
        "driver": driver,
        "sampler": parse_choice(options.get("sampler", NSGA2), option_name("sampler"), SAMPLERS),
        "trials": parse_int(options.get("trials", TRIALS), option_name("trials"), 1),
        "seed": parse_int(options.get("seed", 0), option_name("seed")),
    }


def read_burst(workload: str, value: object, option_name: OptionNamer = str) -> int | None:
    """Parse the number of requests that arrive together; None: no burst.

    Raises SearchSpaceError if the number is invalid, or the workload serves no stream.
    """
    if value is None:
        return None
    if workload not in _BURST_OF:
        raise _other_workload_error(option_name("burst"), _BURST_OF, option_name)
    return parse_int(value, option_name("burst"), 1, _MOST_AT_ONCE)


def _parse_workload(value: object) -> str:
    if not isinstance(value, str):
        raise SearchSpaceError(f"The workload is a word, not {format_input(value)}.")
    return as_workload_name(str(value).strip().lower())


def _parse_answer(term: Term, value: object, option_name: str) -> Answer | tuple[Answer, ...]:
    """Parse the answer to a question; a tuple if there are several values."""
    if not term.takes_several:
        return parse_value(term, value, option_name)
    if split_items(value, option_name) == [ALL] and term.term in ("num_gpus", "contract"):
        return ALL if term.term == "num_gpus" else tuple(Contract)
    values = parse_values(term, value, option_name)
    return values[0] if len(values) == 1 else tuple(values)


def _read_settings(workload: str, values: object) -> dict[str, object]:
    """The parsed values of ``settings`` by full parameter name; refuses repeated parameters."""
    parameters = terms_of(workload, "parameter", "pool", "derived")
    read_settings: dict[str, object] = {}
    for key, value in _mapping_items("settings", values):
        name = full_name(key, parameters)
        if name in read_settings:
            raise SearchSpaceError(f"{name} is set twice; list its values with commas.")
        read_settings[name] = _parse_setting_values(parameters.get(name), value, name)
    return read_settings


def _parse_setting_values(term: Term | None, value: object, name: str) -> object:
    """Parse one or several values of a parameter; unknown parameters are not parsed."""
    is_choice = not isinstance(value, str | os.PathLike | Iterable | Real)
    if term is None or (is_choice and not hasattr(value, "tolist")):
        return value
    items = split_items(value, name)
    if "all" in items:
        return items[0] if len(items) == 1 else items
    values = [parse_value(term, item, name) for item in items]
    return values[0] if len(values) == 1 else values


def _refuse_twice(names: Iterable[str], settings: Settings) -> None:
    """Refuse settings of parameters that an option sets, too."""
    for name in names:
        if name in settings:
            raise SearchSpaceError(f"{name} is set twice; list its values with commas.")


def _parse_objectives(workload: str, value: object, option_name: OptionNamer) -> tuple[str, ...]:
    """The full names of the requested objectives, in order; empty if none is specified."""
    objectives = terms_of(workload, "objective")
    items = split_items(value, "objectives") if not _is_empty(value) else []
    if wrong := [item for item in items if not isinstance(item, str)]:
        raise SearchSpaceError(f"An objective is a name, not {format_input(wrong[0])}.")
    return tuple(full_name(str(item), objectives) for item in items)


def _training_objective_answers(answers: Answers, option_name: OptionNamer) -> dict[str, object]:
    """Answers that move a training objective such as ``dpo`` out of the objectives.

    Empty if there is none.
    """
    objectives = answers.get("objectives")
    if objectives is None or _is_empty(objectives):
        return {}
    items = split_items(objectives, "objectives")
    named = [item for item in items if isinstance(item, str) and is_objective(item)]
    if not named:
        return {}
    if len(named) > 1 or "training_objective" in answers:
        raise SearchSpaceError(
            f"{option_name('training_objective')} is one of several: give it once, not "
            f"{', '.join(named)}."
        )
    others = [item for item in items if item not in named]
    return {"training_objective": named[0], "objectives": others or None}


def _is_empty(value: object) -> bool:
    return isinstance(value, str | tuple | list | set | frozenset) and not value


def _parse_constraints(workload: str, values: object, option_name: OptionNamer) -> dict[str, float]:
    """The bounds in SI units by limit; refuses unknown limits and limits of other workloads."""
    limits = terms_of(workload, "limit")
    other_limits = {name: term for name, term in glossary().items() if "limit" in term.kind}
    bounds = {}
    for key, value in _mapping_items("constraints", values):
        name = full_name(key, {**limits, **other_limits})
        if name in limits:
            bounds[name] = float(parse_value(limits[name], value, option_name(name)))
        elif name in other_limits:
            error = _other_workload_error(option_name(name), other_limits[name].of, option_name)
            if name == "cost" and workload in glossary()[BUDGET].of:
                error = SearchSpaceError(
                    f"{error} Limit the cost of a service with {option_name('budget')} of size, "
                    "per time: 50kUSD/month, 100USD/h."
                )
            raise error
        else:
            raise SearchSpaceError(
                f"Unknown constraint {format_input(key)}.{suggest_term(key, limits)} "
                f"Known: {', '.join(limits)}."
            )
    return bounds


def _mapping_items(part: str, mapping: object) -> Iterable[tuple[str, object]]:
    """The (name, value) pairs of a mapping, without values None; refuses other types."""
    if not isinstance(mapping, Mapping):
        raise SearchSpaceError(
            f"{part} is a mapping of names to values, not {format_input(mapping)}."
        )
    for name in mapping:
        if not isinstance(name, str):
            raise SearchSpaceError(f"{part}: {format_input(name)} is not a name.")
    return [(name, value) for name, value in mapping.items() if value is not None]


def _parse_texts(value: object, option_name: str) -> Answer | tuple[Answer, ...]:
    """Parse one name, or several as a tuple."""
    values = [
        parse_value(glossary()[MODEL], item, option_name)
        for item in split_items(value, option_name)
    ]
    return values[0] if len(values) == 1 else tuple(values)


def _parse_path(value: object, option_name: str) -> str:
    return str(parse_value(glossary()[SPACE], value, option_name))


_PARTS: Mapping[str, Callable[[str, object, OptionNamer], object]] = {
    "objectives": _parse_objectives,
    "constraints": _parse_constraints,
    "precision": lambda _, value, namer: _parse_texts(value, namer("precision")),
    "specs": lambda _, value, namer: Path(_parse_path(value, namer("specs"))),
}


def _refuse_others(workload: str, answers: Answers, option_name: OptionNamer) -> None:
    """Refuse fields that are questions of other workloads only."""
    for name, value in answers.items():
        term = glossary().get(name)
        if term is None or "question" not in term.kind or not term.of or workload in term.of:
            continue
        if value != getattr(Request, name, None):
            raise _other_workload_error(option_name(name), term.of, option_name)


def _other_workload_error(
    subject: str, workloads: Iterable[str], option_name: OptionNamer
) -> SearchSpaceError:
    return SearchSpaceError(f"{subject} is for {option_name('workload')} {' or '.join(workloads)}.")


def _unknown_argument_error(workload: str, name: str) -> SearchSpaceError:
    """The error for an unknown keyword argument, with the field or option to use instead."""
    terms = terms_of(workload, "parameter", "question", "limit", "pool")
    full = full_name(name, terms)
    if full in _FIELDS:
        return SearchSpaceError(f"Unknown argument {name!r}. Did you mean {full}?")
    if full in terms_of(workload, "parameter", "pool"):
        return SearchSpaceError(f"{name} is a parameter: give settings={{{full!r}: ...}}.")
    if full in terms:
        return SearchSpaceError(f"{name} is a limit: give constraints={{{full!r}: ...}}.")
    if removed := REMOVED_OPTIONS.get(f"search {name}"):
        return SearchSpaceError(f"Unknown argument {name!r}. {removed}")
    hint = did_you_mean(name, _FIELDS)
    return SearchSpaceError(f"Unknown argument {name!r}.{hint} Known: {', '.join(_FIELDS)}.")

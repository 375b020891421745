"""Plan files: one configuration with the answers to all questions."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import field, fields
from pathlib import Path
from typing import Self

from planner.base.csv_cells import Row, Value
from planner.base.read_files import RESULT, UncheckedTable, read_json, read_toml
from planner.base.records import record
from planner.base.version import __version__
from planner.errors import SearchSpaceError, SpecError, did_you_mean
from planner.question.parse_values import format_input, parse_value, price_of_contract
from planner.question.renamed import current_keys
from planner.question.request import ALL, PlanRequest, Request
from planner.question.terms import Term, parameter_defaults, terms_about, terms_of
from planner.workloads.build_request import make_request
from planner.workloads.make_plan import Plan
from planner.workloads.registry import workload_names

PLAN_FILE = "plan.toml"
"""The file name of the plan in a launch directory."""

_HEADER = "# `planner estimate --plan FILE` shows this plan; further options change it.\n"
_WHOLE_SPACE = "space"
_OF_POOLS = ("mode", "prefill_gpu")
_TOKENS = "total_tokens"


@record(kw_only=True)
class SavedPlan:
    """One configuration: its question with all answers, and the value of every parameter.

    ``answers`` maps questions of the table of terms, ``parameters`` its parameters, to words and
    numbers; of disaggregated plans also those of the prefill workers. ``specs`` has the digests of
    the specs: with the same specs the estimate is the same to the last bit. ``specs_folder`` is the
    user's folder of specs, empty if there was none. ``defaulted`` are the parameters that the file
    of an older version lacks; they have their defaults.
    """

    workload: str
    answers: Row
    parameters: Row
    specs: Mapping[str, str] = field(default_factory=dict)
    version: str = __version__
    specs_folder: str = ""
    defaulted: tuple[str, ...] = ()

    @classmethod
    def of(cls, plan: Plan, row: Row) -> Self:
        """The saved plan of one row of the result columns of ``plan``."""
        workload = plan.workload.name
        settled_answers = all_answers(plan, row)
        pools = terms_of(workload, "pool") if row.get("prefill_gpu") is not None else ()
        names = (*terms_of(workload, "parameter"), *pools)
        parameters = {name: row[name] for name in names}
        return cls(
            workload=workload,
            answers={
                name: _absolute_path(answer) if _is_file(name, answer) else answer
                for name, answer in settled_answers.items()
                if answer is not None and name not in parameters
            },
            parameters=parameters,
            specs=dict(plan.digests),
            specs_folder="" if plan.request.specs is None else str(plan.request.specs.absolute()),
        )

    def request(self) -> Request:
        """The request that evaluates only the configuration of this plan.

        Raises SpecError or SearchSpaceError if an answer or a value is invalid.
        """
        named = {
            name: self.parameters[name]
            for name, term in terms_of(self.workload, "parameter").items()
            if term.is_user_input
        }
        settings = {name: value for name, value in self.parameters.items() if name not in named}
        answers = {"workload": self.workload, "settings": settings, **named, **self.answers}
        request = make_request({**answers, "specs": self.specs_folder or None})
        return PlanRequest(**vars(request))

    def to_dict(self) -> dict[str, object]:
        """The plan as a table of texts and numbers, for JSON."""
        parts = {name: getattr(self, name) for name in _file_parts()}
        return {name: dict(p) if isinstance(p, Mapping) else p for name, p in parts.items()}

    @classmethod
    def from_dict(cls, table: object, where: str) -> Self:
        """Build a plan from the table of `to_dict`, of this or an older version.

        Raises SpecError if something is unknown, or missing and without a default; the message
        names ``where``.
        """
        if not isinstance(table, Mapping):
            raise SpecError(f"{where}: is not a plan: give a file of --save-plan.")
        table = current_keys(table, where)
        parts = _file_parts()
        errors = [
            f"{name} is not part of a plan.{did_you_mean(str(name), parts)}"
            for name in table
            if name not in parts
        ]
        workload = table.get("workload")
        if workload not in workload_names():
            *first, last = workload_names()
            workloads = f"{', '.join(first)} or {last}"
            misspelt = " ".join(error for error in errors if error.endswith("?"))
            raise SpecError(
                f"{where}: is not a plan: its workload is {workloads}. {misspelt}".rstrip()
            )
        answers = _read_part(table, "answers", terms_of(workload, "question"), errors)
        parameters = _read_part(
            table, "parameters", terms_of(workload, "parameter", "pool"), errors
        )
        texts, digests = _read_texts(table, errors), table.get("specs", {})
        if not isinstance(digests, Mapping) or not all(
            isinstance(digest, str) for digest in digests.values()
        ):
            errors.append("[specs] is not a table of digests.")
        defaults = parameter_defaults(workload)
        lacking = [name for name in terms_of(workload, "parameter") if name not in parameters]
        needed = sorted(name for name in lacking if name not in defaults)
        if not errors:
            errors += [f"parameters.{name} is missing." for name in needed]
        if "model" not in answers and not errors:
            errors.append("answers.model is missing.")
        if errors:
            raise SpecError("\n".join(f"{where}: {error}" for error in errors))
        defaulted = tuple(name for name in defaults if name in lacking)
        return cls(
            workload=workload,
            answers=answers,
            parameters={**{name: defaults[name] for name in defaulted}, **parameters},
            defaulted=defaulted,
            specs=digests,
            **texts,
        )

    def to_toml(self) -> str:
        """The plan as the text of a TOML file."""
        lines = [_HEADER]
        tables = {name: value for name, value in self.to_dict().items() if isinstance(value, dict)}
        names = ("workload", "version", *(("specs_folder",) if self.specs_folder else ()))
        lines += [f"{name} = {toml_value(getattr(self, name))}\n" for name in names]
        for name, table in tables.items():
            lines.append(f"\n[{name}]\n")
            lines += [f"{_toml_key(key)} = {toml_value(value)}\n" for key, value in table.items()]
        return "".join(lines)

    def to_json(self) -> str:
        """The text of a plan file in JSON."""
        return json.dumps(self.to_dict(), indent=1) + "\n"

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a plan from a TOML or JSON file.

        Raises SpecError if the file cannot be read or contains no plan.
        """
        if path.suffix != ".json":
            return cls.from_dict(read_toml(path), str(path))
        table = read_json(path, RESULT)
        if isinstance(table, dict) and isinstance(table.get("recommended"), dict):
            table = table["recommended"]  # the file of a search
        return cls.from_dict(table, str(path))


def all_answers(plan: Plan, row: Row) -> dict[str, Value]:
    """The answers to all questions except the space, by question, from the request or the row."""
    settled, profile = plan.reproducing_answers(row), plan.workload.profile_kind
    answers = {}
    for name in terms_of(plan.workload.name, "question"):
        answer, settled_answer = getattr(plan.request, name, None), settled.get(name)
        is_choice = answer in (None, ALL) or isinstance(answer, tuple | list)
        if name != _WHOLE_SPACE:
            answers[name] = settled_answer if is_choice or name == profile else answer
    for site in plan.source_of(row).sites[:1]:
        answers["price"] = price_of_contract(plan.request.price, site.contract)
    answers = with_one_length(answers)
    if "prefill_gpu" in answers:  # None: the same as the other GPUs
        answers["prefill_gpu"] = plan.request.prefill_gpu
    if row.get("prefill_gpu") is None:
        answers.update({name: None for name in _OF_POOLS if name in answers})
    return answers


def with_one_length(answers: Mapping[str, Value]) -> dict[str, Value]:
    """The answers without ``total_tokens`` if steps or samples set the length of the run."""
    has_others = any(answers.get(name) for name in terms_about("run_length") if name != _TOKENS)
    return {name: value for name, value in answers.items() if name != _TOKENS or not has_others}


def single_answers(request: Request) -> dict[str, Value]:
    """The answers of a request that have one value, by question, as texts and numbers."""
    answers: dict[str, Value] = {}
    for name in terms_of(request.workload, "question"):
        answer = getattr(request, name, None)
        if answer not in (None, ALL) and not isinstance(answer, tuple | list):
            answers[name] = _absolute_path(answer) if _is_file(name, answer) else answer
    if request.specs is not None:
        answers["specs"] = str(request.specs.absolute())
    return answers


def non_default_parameters(
    workload: str, row: Row, framework_defaults: Row | None = None
) -> dict[str, Value]:
    """The parameters of a row that differ from their defaults, by name.

    Experts default to the type of the other matrices, and prefill workers to the values of the
    decode workers. ``framework_defaults``: defaults of the framework, which apply only all
    together."""
    settings = {
        name: row[name]
        for name, term in terms_of(workload, "parameter").items()
        if not term.is_user_input and row[name] != term.default_value
    }
    if framework_defaults:
        is_usual = all(row[name] == value for name, value in framework_defaults.items())
        for name in framework_defaults:
            settings.pop(name, None)
            if not is_usual:
                settings[name] = row[name]
    if settings.get("expert_quantization") == settings.get("quantization"):
        settings.pop("expert_quantization", None)
    if row.get("prefill_gpu") is None:
        return settings
    pools = {name: row[name] for name in terms_of(workload, "pool")}
    prefill_settings = {
        name: value
        for name, value in pools.items()
        if name.endswith("replicas") or value != row[name.removeprefix("prefill_")]
    }
    return settings | prefill_settings


def _file_parts() -> list[str]:
    """The names of the parts of a plan file."""
    return [part.name for part in fields(SavedPlan) if part.name != "defaulted"]


def _read_part(
    table: UncheckedTable, part: str, terms: Mapping[str, Term], errors: list[str]
) -> dict[str, Value]:
    """Parse the table ``part`` of a plan file, by term; problems are appended to ``errors``."""
    values = table.get(part)
    if not isinstance(values, Mapping):
        errors.append(f"there is no table [{part}].")
        return {}
    parsed: dict[str, Value] = {}
    for name, value in values.items():
        if name not in terms:
            errors.append(f"{part}.{name} is unknown.{did_you_mean(str(name), terms)}")
            continue
        try:
            if not isinstance(value, str | int | float):
                raise SearchSpaceError(
                    f"{part}.{name} is one word or number, not {format_input(value)}."
                )
            parsed[name] = parse_value(terms[name], value, f"{part}.{name}")
        except SearchSpaceError as error:
            errors.append(str(error))
    return parsed


def _read_texts(table: UncheckedTable, errors: list[str]) -> dict[str, str]:
    """The texts ``version`` and ``specs_folder`` of a plan file, by name, where present."""
    texts: dict[str, str] = {}
    for name in ("version", "specs_folder"):
        value = table.get(name, "")
        if not isinstance(value, str) or "\0" in value:
            errors.append(f"{name} is not text.")
        elif name in table:
            texts[name] = value
    return texts


def _is_file(name: str, answer: object) -> bool:
    """True if an answer is the path of a user's price list or spec file."""
    return name == "prices" or (str(answer).endswith(".toml") and os.path.isfile(str(answer)))


def _absolute_path(path: object) -> str:
    """The absolute path, as text."""
    return str(Path(str(path)).absolute())


def _toml_key(name: str) -> str:
    return name if name.replace("_", "").isalnum() and name.isascii() else json.dumps(name)


def toml_value(value: object) -> str:
    """A text, number or list as TOML."""
    text = json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=True)
    import tomllib  # a search needs none where its specs were parsed before

    tomllib.loads(f"value = {text}")
    return text

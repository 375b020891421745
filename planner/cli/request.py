"""From the options that were given to a request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import typer

from planner.cli.options import Driver, Given, is_given
from planner.request import ALL, Request
from planner.terms import Term, glossary, terms_of
from planner.workloads.registry import known_workload

# No run is that short: a thousand tokens are less than one sequence.
_FEWEST_TOKENS = 1000.0
# Options that do nothing alone: their parameters, what they need, and whether it is there.
_NEEDS: tuple[tuple[tuple[str, ...], str, Callable[[Given], bool]], ...] = (
    (
        ("trials", "seed", "sampler", "storage"),
        "--driver optuna",
        lambda given: given["driver"] is Driver.OPTUNA,
    ),
    (("all_rows",), "--csv or --json", lambda given: bool(given["csv"] or given["json"])),
    (("top",), "the report: leave out --quiet", lambda given: not given["quiet"]),
    (
        ("acceptance_rate", "draft_cost"),
        "--draft-tokens",
        lambda given: (given["draft_tokens"] or 0) > 0 or given.get("plan") is not None,
    ),
)
# Questions that take several words.
_SEVERAL = ("model", "gpu", "framework", "engine", "mode", "adapter")
_EXAMPLES = {"second": "s", "byte": "GiB"}
_UNITS = {"usd": "USD"}


def check_options(given: Given) -> None:
    """Refuse options that the chosen workload does not know, or that do nothing alone.

    Raises
    ------
    SearchSpaceError
        One was given; the message names it and its workload, or what it needs.
    """
    from planner.errors import SearchSpaceError

    workload = known_workload(given["workload"])
    of = {name: (term.option_name, term.of) for name, term in glossary().items()}
    del of["precision"]  # an option of every workload, a parameter of training alone
    of |= {"burst": ("--burst", ("serve",))}
    for name, (option, workloads) in of.items():
        if workloads and workload not in workloads and is_given(given, name):
            wanted = " or ".join(workloads)
            raise SearchSpaceError(f"{option} is an option of --workload {wanted}.")
    for names, needed, is_there in _NEEDS:
        for name in names:
            if is_given(given, name) and not is_there(given):
                option = "--" + name.removesuffix("_rows").replace("_", "-")
                raise SearchSpaceError(f"{option} needs {needed}.")


def make_request(given: Given) -> Request:
    """A `planner.Request` from what was given.

    Raises
    ------
    SearchSpaceError
        A text is not what its option takes, or the workload knows no such option.
    """
    from planner.configurations.choices import parse_settings

    plan = _plan_of(given)
    check_options(given)
    workload = str(given["workload"])
    asked: dict[str, Any] = {
        name: _answer(term, given[name])
        for name, term in terms_of(workload, "question").items()
        if given.get(name) is not None and (plan is None or is_given(given, name))
    }
    settings = parse_settings(given["settings"] or [])
    num_gpus = None if given["num_gpus"] is None else counts(given["num_gpus"])
    if precision := words(given["precision"]):
        asked["precision"] = precision
    if plan is not None:
        if num_gpus is not None:
            asked["num_gpus"] = num_gpus
        return replace(plan, settings={**plan.settings, **settings}, specs=given["specs"], **asked)
    if "model" not in asked:
        raise typer.BadParameter("Missing option '--model'.")
    return Request(
        workload=workload,
        num_gpus=num_gpus,
        settings=settings,
        objectives=tuple(words(",".join(given.get("objective") or []))),
        constraints=limits(given, workload),
        specs=given["specs"],
        **asked,
    )


def _plan_of(given: Given) -> Request | None:
    """The request of the plan file that was given; its workload is that of the command then."""
    if given.get("plan") is None:
        return None
    from planner.errors import SearchSpaceError
    from planner.pinned import PinnedPlan

    plan = PinnedPlan.read(given["plan"]).request()
    if is_given(given, "workload") and given["workload"] != plan.workload:
        raise SearchSpaceError(
            f"{given['plan']} is a plan of --workload {plan.workload}: leave --workload out."
        )
    given["workload"] = plan.workload
    return plan


def _answer(term: Term, value: Any) -> Any:
    """The value of a question's option as a request takes it."""
    if term.type == "token":
        return _total_tokens(term.option_name, value)
    if term.term in _SEVERAL:
        several = words(value)
        return several[0] if len(several) == 1 else several or None
    return value


def _total_tokens(option: str, text: str) -> float | None:
    from planner.errors import SearchSpaceError

    tokens = quantity(option, text, "token")
    if tokens is not None and 0 < tokens < _FEWEST_TOKENS:
        raise SearchSpaceError(
            f"{option} {text}: that is {tokens:g} tokens; give a unit, as in 1.4T or 300B."
        )
    return tokens


def limits(given: Given, workload: str) -> dict[str, float]:
    """The limits that were given, in SI units.

    Raises
    ------
    SearchSpaceError
        A text is not a quantity; the message names the option.
    """
    bounds = {
        name: _bound(term, given.get(name))
        for name, term in terms_of(workload, "limit").items()
        if not {"question", "parameter"} & set(term.kind)
    }
    return {name: bound for name, bound in bounds.items() if bound is not None}


def _bound(term: Term, given: Any) -> float | None:
    if term.type == "count":
        return given if given is None else float(given)
    return quantity(term.option_name, given, term.type, _UNITS.get(term.type))


def quantity(
    option: str, text: str | None, dimension: str, default_unit: str | None = None
) -> float | None:
    """The text of an option in SI units; None where it was not given.

    Raises
    ------
    SearchSpaceError
        It is not a number with such a unit; the message names the option.
    """
    from planner.errors import SearchSpaceError
    from planner.units import parse_quantity

    if text is None:
        return None
    if default_unit is None and dimension in _EXAMPLES and text.replace(".", "", 1).isdigit():
        raise SearchSpaceError(
            f"{option} {text}: needs a unit, as in {text}{_EXAMPLES[dimension]}."
        )
    try:
        return parse_quantity(text, dimension, default_unit)
    except ValueError as error:
        raise SearchSpaceError(f"{option} {text}: {error}.") from error


def counts(text: str) -> tuple[int, ...] | str:
    """Numbers of GPUs in a text, or ``all``.

    Raises
    ------
    SearchSpaceError
        There is something else in it.
    """
    from planner.errors import SearchSpaceError

    found = [word.strip() for word in text.split(",")]
    if found == [ALL]:
        return ALL
    for word in found:
        # 2,048 is one number to its writer: 048 must not become a second count.
        if not (word.isascii() and word.isdigit()) or (word.startswith("0") and word != "0"):
            raise SearchSpaceError(
                f"--gpus {text}: {word!r} is not a whole number; write 64, or 64,128 for several."
            )
        if len(word) > 8:
            raise SearchSpaceError(f"--gpus {text}: more GPUs than can be planned.")
    return tuple(int(word) for word in found)


def words(text: str | None) -> tuple[str, ...]:
    """The words of a text between commas; empty ones are left out."""
    return tuple(word.strip() for word in (text or "").split(",") if word.strip())

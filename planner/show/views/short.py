"""Plans in a few words."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from planner.base import text
from planner.configurations.serving import PREFILL
from planner.plan.plan import Plan
from planner.question.terms import glossary, terms_about, terms_of
from planner.show.views.told import number_of
from planner.workloads.base import Workload
from planner.workloads.training_words import FOLLOWING

SHORT_WORDS = {"aggregated": "agg", "disaggregated": "disagg"}
_PLACES = terms_about("place")
# The rank of the first parameter of training that few plans set; at its default it is not told.
_RARE = 29


def short_plan(plan: Plan, row: Mapping[str, object]) -> str:
    """A row in a few words, with everything of which several values were searched."""
    wording = plan.workload.wording
    return ", ".join([*_where(plan.problem.axes, row), (wording.brief or wording.in_short)(row)])


def shortest_plan(
    workload: Workload, axes: Collection[str], row: Mapping[str, object], without: str
) -> str:
    """A row's layout and where on several ``axes`` it runs, but for the axis ``without``."""
    wording = workload.wording
    layout = wording.layout or wording.brief or wording.in_short
    where = _where([name for name in axes if name != without], row)
    return ", ".join([*(SHORT_WORDS.get(word, word) for word in where), layout(row)])


def _where(axes: Collection[str], row: Mapping[str, object]) -> list[str]:
    where = [text.value(row[name]) for name in axes if name in _PLACES]
    if "num_gpus" not in axes:
        return where
    count = number_of(row, "num_gpus")
    return [*where, f"{count:,.0f} GPU{'s' * (count > 1)}"]


def degrees(row: Mapping[str, object], names: Sequence[str]) -> str:
    """``tp4 pp4 vp20 dp128``: the degrees above 1."""
    terms = glossary()
    words = [f"{terms[name].short}{row[name]}" for name in names if number_of(row, name) > 1]
    return " ".join(words) or "one GPU"


def share(loss: float) -> str:
    """How much is lost or gained, in percent."""
    return f"{100 * loss:.1f} %" if loss < 0.1 else f"{100 * loss:,.0f} %"


def layout_of(workload: Workload, row: Mapping[str, object]) -> str:
    """A row's degrees of parallelism in short."""
    wording = workload.wording
    if wording.layout is not None:
        return wording.layout(row)
    return degrees(row, wording.degrees)


def plan_of(workload: Workload, row: Mapping[str, object]) -> str:
    """A row's software and layout as its users write it."""
    wording = workload.wording
    software = [row.get(name) for name in ("mode", *terms_about("software"))]
    words = [str(word) for word in software if word]
    return ", ".join([*words, (wording.brief or wording.in_short)(row)])


def settings_text(plan: Plan, row: Mapping[str, object]) -> str:
    """Where a row runs and the values of every parameter, in one paragraph."""
    parameters = terms_of(plan.workload.name, "parameter", "derived", "pool")
    names = dict.fromkeys(["mode", "gpu", plan.workload.profile_kind, *parameters])
    return "  ".join(
        f"{name}={str(row[name]).lower() if isinstance(row[name], bool) else row[name]}"
        for name in names
        if row.get(name) is not None and not _goes_without_saying(name, row[name])
    )


def _goes_without_saying(name: str, value: object) -> bool:
    """Whether it follows from others, or is the default of an engine or of what few plans set."""
    if name.removeprefix(PREFILL) == "gpu_memory_utilization" and not value:
        return True
    term = glossary().get(name)
    is_rare = term is not None and bool(term.axis) and int(term.rank or 0) >= _RARE
    return value in FOLLOWING.get(name, ()) or (
        is_rare and term is not None and value == term.plain
    )

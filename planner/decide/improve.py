"""What to change in a configuration: the fewest parameters that make it best, or make it fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from planner.base.arrays import FloatArray, IndexArray
from planner.base.cells import Row, Value, number
from planner.base.records import record
from planner.confidence.intervals import MEDIAN
from planner.errors import PlannerError
from planner.estimators.training.share import Setting
from planner.optimize.collector import full_rows
from planner.optimize.pareto import FURTHEST
from planner.optimize.problem import Objective, Problem
from planner.optimize.result_columns import fit_probability
from planner.optimize.source import Candidates
from planner.question.request import Request
from planner.question.terms import Term, glossary, terms_about, terms_of
from planner.workloads.base import Evaluation
from planner.workloads.open_facts import assumed_limits
from planner.workloads.plan import Plan, make_plan
from planner.workloads.serving_space import told_at

SURE = 0.9
"""A change that fits less surely is taken where nothing else fits."""

CHANGES = range(1, 4)
"""More parameters at once are another plan, not a change."""

# These follow from others: a change of them alone is no decision of the user's.
_FOLLOWING = terms_about("following")
_BEST = {"serve": "throughput_per_gpu"}
_ENOUGH = 0.9
_CAP = "concurrency"
_WORTH = 0.01


@record(kw_only=True)
class Change:
    """A better configuration and what is different there.

    ``changed`` maps parameters to their values before and after, ``row`` has its result
    columns. ``gain`` is what more of the objective it reaches, as a share; NaN where the
    configuration before does not run. ``is_told`` is whether published runs tell such a gain
    from none: below their tie factor it is a prediction alone. ``fits`` is the share of published
    runs of the kind that would have had enough memory, NaN where there are none. ``value`` is
    the objective.
    """

    changed: Mapping[str, tuple[Value, Value]]
    row: Row
    gain: float
    fits: float
    is_told: bool = True
    value: float = np.nan


def changes_of(
    request: Request,
    plan: Plan,
    found: Evaluation,
    row: Row,
    can_say: Callable[[str, str | int | float], bool],
    defaults: Collection[str],
) -> list[Change]:
    """What is better near the plan of a launch file, can be said in it, and keeps its load.

    The load that was given, in requests of a replica at once, is one that no change raises: of a
    rate the number that it keeps busy, which ``row`` has. ``defaults`` names what the file leaves
    to its engine, and ``can_say`` tells whether it has words for a value.
    """
    most = math.inf
    if request.workload == "serve":
        cap = request.settings.get(_CAP) if _CAP not in defaults else None
        if request.request_rate is not None:
            most = number(row[_CAP])
        elif cap is not None:
            most = float(str(cap[0] if isinstance(cap, tuple | list) else cap))

    def may_be(name: str, value: Value) -> bool:
        fits = name != _CAP or number(value) <= most
        return value is not None and can_say(name, value) and fits

    return best_changes(plan, found, may_be)


def best_changes(
    plan: Plan, found: Evaluation, may_be: Callable[[str, Value], bool] = lambda *_: True
) -> list[Change]:
    """For one, two and three changed parameters the best, as far as more of them gain more.

    ``plan`` and ``found`` are those of one configuration; ``may_be`` says whether a parameter
    may get a value. Number format and batch stay as they
    are, and no change makes it fit less surely than now, or than 9 of 10 runs do. Empty where
    nothing is better, or where its workers are of two kinds.
    """
    if found.source.mesh is None:
        return []
    own = found.candidates.row
    problem = _around(plan, own, may_be)
    if problem is None:
        return []
    (objective,) = problem.objectives[:1]
    # Plans are compared by what they carry at most, also where a load is stated.
    whole = found.source.judged(found.candidates.configurations)
    now = float(np.ravel(whole.value(objective.name))[0])
    before = np.nan if found.rejected_by else now
    surely = SURE
    if not found.rejected_by:  # as surely as it fits now, where published runs tell
        (row,) = full_rows(found.table(), [found.source])
        fits = fit_probability(row)
        surely = max(min(SURE, fits), MEDIAN) if np.isfinite(fits) else SURE
    changes = _changes(problem, objective, own, before, surely)
    if not changes and found.rejected_by:
        return _changes(problem, objective, own, before, MEDIAN)
    return changes


def another_plan(
    plan: Plan,
    found: Evaluation,
    profiles: Iterable[str] = (),
    may_be: Callable[[str, Value], bool] = lambda *_: True,
) -> tuple[Plan, Change] | None:
    """The best plan of these GPUs that fits, however much changes, and what does.

    Of the framework or engine of the plan; where it has none, of the best of ``profiles`` that
    keep weights and optimizer states in as many bits. Batch and formats stay. None where nothing
    fits.
    """
    if found.source.mesh is None:
        return None
    own, name = found.candidates.row, found.source.profile
    if best := _best_of(name, plan, own, may_be):
        return best
    others = (_best_of(one, plan, own, may_be) for one in profiles if one != name)
    fit = (one for one in others if one is not None)
    return max(fit, key=lambda one: one[1].value, default=None)


def _best_of(
    profile: str, plan: Plan, own: Row, may_be: Callable[[str, Value], bool]
) -> tuple[Plan, Change] | None:
    """The best that fits of a framework or engine that keeps states in no fewer bits."""
    problem = _around(plan, own, may_be, profile)
    if problem is None or _state_bytes(problem) < _state_bytes(plan.problem):
        return None
    for surely in (SURE, MEDIAN):
        found = _best_by_distance(problem, problem.objectives[0], own, surely, range(len(own)))
        if best := max(found, key=lambda one: one[2], default=None):
            return replace(plan, problem=problem), _change(*best[:2], own, best[2], np.nan)
    return None


def _state_bytes(problem: Problem) -> float:
    """Of weights and optimizer states per parameter; none where nothing is trained."""
    setting = problem.sources[0].setting
    if not isinstance(setting, Setting):
        return 0.0
    states = setting.framework.states
    return states.weight + states.optimizer


def _changes(
    problem: Problem, objective: Objective, own: Row, before: float, surely: float
) -> list[Change]:
    """The best for each number of changed parameters that gains something over fewer."""
    changes: list[Change] = []
    reached = before if np.isfinite(before) else 0.0
    for candidates, row, value in _best_by_distance(problem, objective, own, surely):
        if value > reached * (1 + _WORTH):
            changes.append(_change(candidates, row, own, value, value / before - 1))
            reached = value
    return changes


def recommended_change(changes: list[Change]) -> Change | None:
    """The one with the fewest changes that has nearly all there is to gain."""
    if not changes:
        return None
    most = max((change.gain for change in changes if np.isfinite(change.gain)), default=np.nan)
    enough = (change for change in changes if not change.gain < _ENOUGH * most)
    return next(enough)


def _around(
    plan: Plan, own: Row, may_be: Callable[[str, Value], bool], profile: str | None = None
) -> Problem | None:
    """The search for what is better: the space's values of each parameter and the user's own.

    ``profile`` is another framework or engine than the plan's.
    """
    request, workload = plan.request, plan.workload.name
    (source,) = plan.problem.sources
    fixed = {
        name: own[name]
        for name, term in terms_of(workload, "parameter").items()
        if name in own and _is_kept(term, workload)
    }
    # Nobody is to wait longer than now, or than is assumed to be good enough.
    limits = {}
    for name, bound in assumed_limits(workload, ()).items():
        now = own.get(f"{name}_s")
        limits[name] = max(bound, now) if isinstance(now, float) and np.isfinite(now) else bound
    asked: dict[str, object] = {
        plan.workload.profile_kind: profile or source.profile,
        "space": None,
        "num_gpus": int(number(own["num_gpus"])),
        "settings": fixed,
        "objectives": (_BEST.get(workload, "throughput"),),
        "constraints": {**limits, **request.constraints},
    }
    if workload == "train":
        asked["global_batch_size"] = int(number(own["global_batch_size"]))
    told = request.max_num_seqs
    if workload == "serve":
        # What an engine is told to run at once goes with what it does.
        request = request.changed(mode="aggregated", request_rate=None, max_num_seqs=None)
    try:
        wide = make_plan(request.changed(**asked))
        asked["settings"] = fixed | _values(wide, own, set(fixed), may_be)
        problem = make_plan(request.changed(**asked)).problem
    except PlannerError:
        return None
    if told is None or workload != "serve":
        return problem
    at_once = int(number(own["concurrency"]))
    sources = (one.changed(lambda s: told_at(s, told, at_once)) for one in problem.sources)
    return replace(problem, sources=tuple(sources))


def _is_kept(term: Term, workload: str) -> bool:
    """Whether a parameter is decided for other reasons than speed: formats, kernels, exchanges,
    the batch, what an engine leaves to others of a GPU's memory."""
    is_kernel = term.type == "flag" and term.term not in _FOLLOWING
    is_batch = workload == "inference" and term.term == "concurrency"
    is_other = term.term in ("gpu_memory_utilization", "cp_comm_type")
    return (term.is_format or is_kernel or is_batch or is_other) and not term.option


def _values(
    wide: Plan, own: Row, fixed: set[str], may_be: Callable[[str, Value], bool]
) -> dict[str, list[Value]]:
    """Of each parameter that is free the values of the space that may be, and the user's own."""
    values: dict[str, list[Value]] = {}
    (source,) = wide.problem.sources
    if source.mesh is None:
        return values
    for name, term in terms_of(wide.workload.name, "parameter").items():
        if name not in own or name in fixed or name == "num_gpus" or term.option:
            continue
        known = [term.shown(value) for value in source.mesh.values(name).tolist()]
        possible = [value for value in known if may_be(name, value)]
        values[name] = list(dict.fromkeys([*possible, own[name]]))
    return values


def _best_by_distance(
    problem: Problem, objective: Objective, own: Row, surely: float, counts: range = CHANGES
) -> Iterator[tuple[Candidates, int, float]]:
    """For each number of changed parameters the best configuration, and its objective.

    Those count that fit in a share ``surely`` of runs.
    """
    best: dict[int, tuple[Candidates, int, float]] = {}
    for source in problem.sources:
        for block in source.blocks(problem.objectives, problem.constraints):
            if block.candidates is None:
                continue
            candidates = block.candidates
            feasible = np.flatnonzero((problem.codes(candidates) == 0).ravel())
            chances = candidates.at(candidates.value("fit_probability"), feasible)
            # Where no published runs tell, what fits by the prediction counts.
            feasible = feasible[~np.asarray(chances < surely)]
            values = candidates.at(candidates.value(objective.name), feasible)
            distance = _distance(candidates, own, feasible)
            for count in counts:
                at = np.flatnonzero(distance == count)
                if not at.size:
                    continue
                chosen = at[int(np.argmax(values[at]))]
                value = float(values[chosen])
                if count not in best or value > best[count][2]:
                    best[count] = (candidates, int(feasible[chosen]), value)
    return (best[count] for count in sorted(best))


def _distance(candidates: Candidates, own: Row, rows: IndexArray) -> FloatArray:
    """How many parameters differ from the user's, of the rows at flat indices."""
    configurations, total = candidates.configurations, np.zeros(rows.size)
    for name, term in glossary().items():
        if "parameter" not in term.kind or name in _FOLLOWING or name not in own:
            continue
        values = getattr(configurations, name, None)
        if values is not None:
            differs = np.asarray(values) != term.coded(own[name])
            total += candidates.at(differs, rows)
    return total


def _change(candidates: Candidates, place: int, own: Row, value: float, gain: float) -> Change:
    source = candidates.source
    table = source.judged(candidates.configurations.rows(np.array([place]))).columns()
    (row,) = full_rows(table, [source])
    changed = {
        name: (own[name], row[name])
        for name, term in glossary().items()
        if "parameter" in term.kind and name in own and own[name] != row.get(name, own[name])
    }
    sure = source.confidence(number(row["num_gpus"]))
    factor = 1.0 if sure is None else min(sure.layout, FURTHEST)
    return Change(
        changed=changed,
        row=row,
        gain=gain,
        fits=fit_probability(row),
        is_told=not gain < factor - 1,
        value=value,
    )

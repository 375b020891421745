"""Plans near another one: how far each value is; and the start of older engine releases."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from planner.base.arrays import BoolArray, FloatArray, IndexArray
from planner.base.csv_cells import Row, Value, number_or_nan
from planner.base.formatting import SURE_FIT
from planner.base.records import record
from planner.configurations.configuration_tables import ServingConfigurations
from planner.errors import PlannerError
from planner.estimators.inference.batch_share import ServingInputs
from planner.optimize.collector import full_rows
from planner.optimize.problem import Problem
from planner.optimize.result_columns import fit_probability
from planner.optimize.source import Candidates
from planner.question.names import MAX_NUM_BATCHED_TOKENS
from planner.question.request import Request
from planner.question.terms import Term, glossary, terms_about, terms_of
from planner.specs.engine import EngineProfile
from planner.specs.software_profile import engine_on, release_parts, runs_on
from planner.specs.spec_paths import SpecKind
from planner.workloads.assumptions import assumed_limits
from planner.workloads.make_plan import Plan, make_plan

TARGET_FIT_PROBABILITY = SURE_FIT
"""Fit probability that a change needs, unless no change reaches it."""

CHANGES = range(1, 4)
"""More parameters at once are another plan, not a change."""

WORTH = 0.01
"""A further change gains more than that."""

# These follow from others: a change of them alone is no decision of the user's.
FOLLOWING = terms_about("following")
_BEST = {"serve": "throughput_per_gpu"}

MayBe = Callable[[str, Value], bool]
"""Whether a parameter may get a value."""


@record(kw_only=True)
class Change:
    """A better configuration and its changed parameters.

    ``changed`` maps parameters to their values before and after, ``row`` has its result
    columns. ``gain`` is what more of the objective it reaches, as a share; NaN where the
    configuration before does not run. ``is_significant`` is whether published runs tell such a gain
    from none: below their tie factor it is a prediction alone. ``fit_probability`` is the share of
    published
    runs of the kind that would have had enough memory, NaN where there are none. ``value`` is
    the objective.
    """

    changed: Mapping[str, tuple[Value, Value]]
    row: Row
    gain: float
    fit_probability: float
    is_significant: bool = True
    value: float = np.nan


def plans_around(
    plan: Plan,
    base_row: Row,
    may_be: MayBe,
    profile: str | None = None,
    more: Mapping[str, Sequence[Value]] = MappingProxyType({}),
) -> Problem | None:
    """Build a search around a plan, over the values of the space and the plan's own values.

    ``may_be`` returns True for each parameter and value that is allowed. ``profile`` is a framework
    or engine other than the plan's; ``more`` has additional values. None: the space cannot be
    planned.
    """
    wide = default_space_plan(plan, base_row, profile)
    if wide is None:
        return None
    values = free_parameter_values(wide, base_row, may_be)
    values |= {name: [*values.get(name, [base_row[name]]), *more[name]] for name in more}
    try:
        settings = {**wide.request.settings, **values}
        problem = make_plan(wide.request.changed(settings=settings)).problem
    except PlannerError:
        return None
    return limit_concurrency(problem, plan, base_row)


def limit_concurrency(problem: Problem, plan: Plan, base_row: Row) -> Problem:
    """Return the problem with at most as many concurrent requests as the plan has."""
    max_num_seqs = plan.request.max_num_seqs
    if max_num_seqs is None or plan.workload.name != "serve":
        return problem
    from planner.workloads.serving.question import with_max_num_seqs

    at_once = int(number_or_nan(base_row["concurrency"]))
    sources = (
        source.changed(lambda s: with_max_num_seqs(s, max_num_seqs, at_once))
        for source in problem.sources
    )
    return replace(problem, sources=tuple(sources))


def default_space_plan(plan: Plan, base_row: Row, profile: str | None = None) -> Plan | None:
    """Plan over the default space; formats, kernels and batch stay as in ``plan``.

    ``profile`` replaces the framework or engine. None: the default space cannot be planned.
    """
    request, workload = plan.request, plan.workload.name
    (source,) = plan.problem.sources
    fixed = {
        name: base_row[name]
        for name, term in terms_of(workload, "parameter").items()
        if name in base_row and _is_fixed(term, workload)
    }
    # Latency must not exceed the present latency or the assumed limit, whichever is larger.
    limits = {}
    for name, bound in assumed_limits(workload, ()).items():
        now = base_row.get(f"{name}_s")
        limits[name] = max(bound, now) if isinstance(now, float) and np.isfinite(now) else bound
    changed_answers: dict[str, object] = {
        plan.workload.profile_kind: profile or source.profile,
        "space": None,
        "num_gpus": int(number_or_nan(base_row["num_gpus"])),
        "settings": fixed,
        "objectives": (_BEST.get(workload, "throughput"),),
        "constraints": {**limits, **request.constraints},
    }
    if workload == "train":
        changed_answers["global_batch_size"] = int(number_or_nan(base_row["global_batch_size"]))
    if workload == "serve":
        assert isinstance(source.inputs, ServingInputs)
        # A server may be started with another number of sequences, as on the largest GPUs.
        max_num_seqs = None
        if request.max_num_seqs is not None:
            defaults = source.inputs.engine.scheduler.defaults
            max_num_seqs = max((default.max_num_seqs for default in defaults), default=None)
        request = request.changed(
            mode="aggregated",
            request_rate=None,
            max_num_seqs=max_num_seqs,
            decode_context_parallel=source.inputs.workload.decode_context_parallel,
        )
    try:
        return make_plan(request.changed(**changed_answers))
    except PlannerError:
        return None


def _is_fixed(term: Term, workload: str) -> bool:
    """Return True for a parameter not chosen for speed: formats, kernels, batch, memory left to
    other programs.
    """
    is_kernel = term.type == "flag" and term.term not in FOLLOWING
    is_batch = workload == "inference" and term.term == "concurrency"
    is_other = term.term in ("gpu_memory_utilization", "cp_comm_type")
    return (term.is_format or is_kernel or is_batch or is_other) and not term.option


def free_parameter_values(wide: Plan, base_row: Row, may_be: MayBe) -> dict[str, list[Value]]:
    """Return, by free parameter, the allowed values of the space and the user's value."""
    values: dict[str, list[Value]] = {}
    (source,) = wide.problem.sources
    fixed = wide.request.settings
    if source.mesh is None:
        return values
    for name, term in terms_of(wide.workload.name, "parameter").items():
        if name not in base_row or name in fixed or name == "num_gpus" or term.option:
            continue
        shown_values = [term.decode(value) for value in source.mesh.values(name).tolist()]
        possible = [
            value
            for value in shown_values
            if may_be(name, value) and not _is_refused(source.inputs, name, value)
        ]
        values[name] = list(dict.fromkeys([*possible, base_row[name]]))
    return values


def _is_refused(inputs: object, name: str, value: Value) -> bool:
    """Return True for steps of fewer tokens than a request that the engine cannot split."""
    if name != MAX_NUM_BATCHED_TOKENS or not isinstance(inputs, ServingInputs):
        return False
    longest = inputs.workload.max_model_len or 0
    is_whole = longest <= inputs.engine.scheduler.longest_step_request
    return is_whole and number_or_nan(value) < longest


Best = dict[int, tuple[Candidates, int, float]]
"""For each number of changed parameters the best configuration, and its objective."""


def best_by_distance(
    problem: Problem, base_row: Row, min_fit_probability: float, counts: range = CHANGES
) -> Best:
    """Search the best configuration per number of changes, with a minimum fit probability."""
    best: Best = {}
    for source in problem.sources:
        for block in source.blocks(problem.objectives, problem.constraints):
            if block.candidates is None:
                continue
            for count, candidate in best_candidates_by_distance(
                problem, block.candidates, base_row, min_fit_probability, counts
            ).items():
                if count not in best or candidate[2] > best[count][2]:
                    best[count] = candidate
    return dict(sorted(best.items()))


def best_candidates_by_distance(
    problem: Problem,
    candidates: Candidates,
    base_row: Row,
    min_fit_probability: float,
    counts: range = CHANGES,
    among: BoolArray | None = None,
) -> Best:
    """Return per number of changes the best configuration of a block by the first objective."""
    codes = problem.codes(candidates) == 0
    feasible = np.flatnonzero((codes if among is None else codes & among).ravel())
    fit_probabilities = candidates.at(candidates.value("fit_probability"), feasible)
    # Without a fit probability the prediction decides.
    feasible = feasible[~np.asarray(fit_probabilities < min_fit_probability)]
    if not feasible.size:  # predictions of time cost more than those of memory
        return {}
    values = candidates.at(candidates.value(problem.objectives[0].name), feasible)
    distance = count_changed_parameters(candidates, base_row, feasible)
    best: Best = {}
    for count in counts:
        positions = np.flatnonzero(distance == count)
        if positions.size:
            chosen = positions[int(np.argmax(values[positions]))]
            best[count] = (candidates, int(feasible[chosen]), float(values[chosen]))
    return best


def count_changed_parameters(candidates: Candidates, base_row: Row, rows: IndexArray) -> FloatArray:
    """Count the parameters of each row (flat index) that differ from the user's."""
    configurations, total = candidates.configurations, np.zeros(rows.size)
    for name, term in glossary().items():
        if "parameter" not in term.kind or name in FOLLOWING or name not in base_row:
            continue
        values = getattr(configurations, name, None)
        if values is not None:
            differs = np.asarray(values) != term.encode(base_row[name])
            total += candidates.at(differs, rows)
    return total


def make_change(
    candidates: Candidates, place: int, base_row: Row, value: float, gain: float
) -> Change:
    """Build the change to the configuration ``place``; ``gain`` is relative to the user's plan."""
    source = candidates.source
    table = source.judged(candidates.configurations.rows(np.array([place]))).columns()
    (row,) = full_rows(table, [source])
    changed = {
        name: (base_row[name], row[name])
        for name, term in glossary().items()
        if "parameter" in term.kind
        and name in base_row
        and base_row[name] != row.get(name, base_row[name])
    }
    confidence = source.confidence_of(row)
    factor = 1.0 if confidence is None else confidence.layout_tie_factor
    return Change(
        changed=changed,
        row=row,
        gain=gain,
        fit_probability=fit_probability(row),
        is_significant=not gain < factor - 1,
        value=value,
    )


# Changes of an engine's memory looked back at: older ones do not know the models of today.
_CHANGES = 2


@record(kw_only=True)
class OlderStart:
    """Releases of an engine, from ``since`` to before ``until``, with which a server does not
    start; its cache has room for a request of ``longest`` tokens."""

    since: str
    until: str
    longest: int


def older_misfit(
    inputs: ServingInputs, configuration: ServingConfigurations, request: Request
) -> OlderStart | None:
    """Return the newest older releases with which a server that starts today would not.

    None if the request states a release, the engine is an old one, or all start.
    """
    from planner.estimators.inference.serving_memory import (
        has_memory_to_start,
        longest_that_fits,
        serving_memory,
    )
    from planner.workloads.serving.question import with_options

    tool, _, number = inputs.engine.since.partition(" ")
    if request.engine_version or not inputs.engine.current or not number:
        return None
    for profile in _older(inputs, tool, number)[:_CHANGES]:
        since = profile.since.partition(" ")[2]
        engine = with_options(engine_on(profile, inputs.machine.gpu, since), request)
        older = replace(inputs, engine=engine)
        memory = serving_memory(older, configuration)
        if not np.all(has_memory_to_start(older, memory, configuration)):
            longest = longest_that_fits(older, memory, configuration)
            return OlderStart(since=since, until=number, longest=longest)
        number = since
    return None


def _older(inputs: ServingInputs, tool: str, number: str) -> list[EngineProfile]:
    """Profiles of releases before ``number`` for the vendor of the GPU, the newest first."""
    catalogue = inputs.machine.catalogue
    profiles = [
        profile
        for name in catalogue.names(SpecKind.ENGINES)
        if (profile := catalogue.load_engine(name).spec).since.startswith(f"{tool} ")
        and runs_on(profile, inputs.machine.gpu)
        and _parts(profile) < release_parts(number)
    ]
    return sorted(profiles, key=_parts, reverse=True)


def _parts(profile: EngineProfile) -> tuple[int, ...]:
    return release_parts(profile.since.partition(" ")[2])

"""What a plan becomes where hardware, terms or the question are a little other than they are.

Nothing is linearised: each change is a prediction of its own, of the same configuration.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar, cast

import numpy as np

from planner.base.csv_cells import Row, number_or_nan
from planner.base.records import record
from planner.errors import PlannerError
from planner.optimize.collector import value_or_none
from planner.optimize.source import SearchInputs, Source, first_row
from planner.question.parse_values import with_contract
from planner.question.request import Request
from planner.question.terms import glossary
from planner.specs.price import CONTRACTS
from planner.specs.validated import replace_unvalidated
from planner.workloads.make_plan import Plan, evaluate, make_single_plan
from planner.workloads.workload import Evaluation

Made = TypeVar("Made")

_SITES = ("site", "prefill_site")
_SPECS_OF_SITES = ("reliability", "power", "offer")


@record(kw_only=True)
class Outcome:
    """Outcome of a changed plan.

    Parameters
    ----------
    row : result columns; None: infeasible
    reason : why the changed plan is infeasible
    """

    row: Row | None
    reason: str = ""


PlanChange = Callable[[Plan], Plan]
"""A change of a plan of one configuration."""


def predict_outcome(plan: Plan, change: PlanChange, burst: int | None = None) -> Outcome:
    """Predict a plan with a change; if that is impossible, return the reason (no exception)."""
    try:
        other = change(plan)
        evaluation = evaluate(other, burst)
    except PlannerError as error:
        return Outcome(row=None, reason=str(error))
    if evaluation.rejected_by:
        return Outcome(row=None, reason=rejection_reason(other, evaluation))
    return Outcome(row=first_row(evaluation.table()))


def rejection_reason(plan: Plan, evaluation: Evaluation) -> str:
    """Describe the rule or limit that rejects the configuration, and its cause."""
    name = evaluation.rejected_by
    rules = {rule.name: rule.description for rule in evaluation.source.rules}
    description = rules.get(name, f"it misses the limit {name}")
    blamed = plan.workload.wording.broken_rule_text(evaluation.candidates, name)
    return f"{description}: {blamed}" if blamed else description


def with_answers(**answers: object) -> PlanChange:
    """Return a change that plans the request again with these answers."""

    def change(plan: Plan) -> Plan:
        return plan_of_request(plan.request.changed(**answers))

    return change


def plan_of_request(request: Request) -> Plan:
    """The plan of a request for one configuration."""
    return make_single_plan(request)


def with_scaled_specs(kind: str, paths: Sequence[str], factor: float) -> PlanChange:
    """Return a change that multiplies numbers of GPU, cluster, software or site by ``factor``."""

    def change(plan: Plan) -> Plan:
        (source,) = plan.problem.sources
        other = _scale_source(source, kind, paths, factor)
        return replace(plan, problem=replace(plan.problem, sources=(other,)))

    return change


def _scale_source(source: Source, kind: str, paths: Sequence[str], factor: float) -> Source:
    """Return the source with the numbers at ``paths`` of one kind of spec times ``factor``."""
    if kind in _SPECS_OF_SITES:
        sites = {name: getattr(source, name) for name in _SITES if hasattr(source, name)}
        return replace(
            source,
            **{
                name: replace(site, **{kind: _scaled_specs(getattr(site, kind), paths, factor)})
                for name, site in sites.items()
                if getattr(site, kind) is not None
            },
        )
    return source.changed(lambda inputs: _scale_setting(inputs, kind, paths, factor))


def _scale_setting(
    inputs: SearchInputs, kind: str, paths: Sequence[str], factor: float
) -> SearchInputs:
    """Return the inputs with numbers of the GPU, cluster or another spec times ``factor``."""
    machine = inputs.machine
    if kind == "gpu":
        gpu, efficiency = machine.gpu, machine.gpu.efficiency
        if efficiency.gemm_table and efficiency.gemm_table_bandwidth is None:
            # Measured products say on which memory they were measured.
            other = replace_unvalidated(efficiency, gemm_table_bandwidth=gpu.memory_bandwidth)
            gpu = replace_unvalidated(gpu, efficiency=other)
        gpu = _scaled_specs(gpu, paths, factor)
        return replace(inputs, machine=replace(machine, gpu=gpu))
    if kind == "cluster":
        cluster = _scaled_specs(machine.cluster, paths, factor)
        return replace(inputs, machine=replace(machine, cluster=cluster))
    return replace(inputs, **{kind: _scaled_specs(getattr(inputs, kind), paths, factor)})


def _scaled_specs(spec: Made, paths: Sequence[str], factor: float) -> Made:
    for path in paths:
        spec = cast(Made, _scale_path(spec, path.split("."), factor))
    return spec


def _scale_path(spec: object, keys: Sequence[str], factor: float) -> object:
    """Return a spec with the numbers at a path of keys times ``factor``; ``*``: all keys."""
    if not keys:
        return spec * factor if isinstance(spec, int | float) else spec
    key, *others = keys
    if isinstance(spec, Mapping):
        names = spec if key == "*" else [name for name in spec if str(name) == key]
        return {**spec, **{name: _scale_path(spec[name], others, factor) for name in names}}
    if spec is None or getattr(spec, key, None) is None:
        return spec
    return replace_unvalidated(spec, **{key: _scale_path(getattr(spec, key), others, factor)})


_COSTS = "cost_usd", "cost_per_million_tokens_usd"
SOFTWARE = "software"
"""The group of alternatives of the same software."""
STEP = 0.1
"""Relative change of a number that is tried in both directions."""

_MOST_NODES = 512
_SOFTWARE = ("launch_time", "overhead")


@record(kw_only=True)
class Sensitivity:
    """Effect of a changed fact on a plan.

    Parameters
    ----------
    name : fact
    group : ``hardware``, ``terms``, ``software`` or ``question``
    outcomes : outcome by change in words, such as ``10 % better``
    """

    name: str
    group: str
    outcomes: Mapping[str, Outcome]

    def to_dict(self, base_row: Row, columns: tuple[str, ...]) -> dict[str, object]:
        """Return the sensitivity as a dictionary for JSON, with changes relative to ``base_row``.

        Parameters
        ----------
        base_row : result columns of the unchanged plan
        columns : columns to report
        """
        return {
            "fact": self.name,
            "group": self.group,
            "outcomes": [
                {
                    "change": description,
                    "impossible": outcome.reason,
                    "predictions": None
                    if outcome.row is None
                    else {name: value_or_none(outcome.row[name]) for name in columns},
                    "changes": _relative_changes(outcome.row, base_row, columns),
                }
                for description, outcome in self.outcomes.items()
            ],
        }

    def largest_change(self, base_row: Row, columns: tuple[str, ...]) -> float:
        """Return the largest relative change of any of these columns; 0: all are unknown.

        Parameters
        ----------
        base_row : result columns of the unchanged plan
        columns : columns to look at
        """
        moves = (
            abs(change)
            for outcome in self.outcomes.values()
            for change in _relative_changes(outcome.row, base_row, columns).values()
            if change is not None
        )
        return max(moves, default=0.0)


@record()
class _SpecNumber:
    """Numbers of specs that are better when higher, or lower where ``low``."""

    name: str
    group: str
    kind: str
    paths: tuple[str, ...]
    low: bool = False


_FACTS = (
    _SpecNumber("GPU: peak and memory bandwidth", "hardware", "gpu",
          ("peak_flops.*", "fp16_accumulate_flops", "memory_bandwidth")),
    _SpecNumber("peak FLOP/s", "hardware", "gpu", ("peak_flops.*", "fp16_accumulate_flops")),
    _SpecNumber("memory bandwidth", "hardware", "gpu", ("memory_bandwidth",)),
    _SpecNumber("memory capacity", "hardware", "gpu", ("memory_capacity",)),
    _SpecNumber("link bandwidth", "hardware", "cluster", ("scale_up.bandwidth",)),
    _SpecNumber("network bandwidth", "hardware", "cluster", ("scale_out.bandwidth",)),
    _SpecNumber("network latency", "hardware", "cluster",
          ("scale_out.base_latency", "scale_out.latency_per_doubling"), low=True),
    _SpecNumber("host link", "hardware", "gpu", ("host.bandwidth", "host.memory_bandwidth")),
    _SpecNumber("price", "terms", "offer", ("value", "low", "high"), low=True),
)  # fmt: skip


def sensitivities(
    plan: Plan, evaluation: Evaluation, row: Row, burst: int | None = None
) -> list[Sensitivity]:
    """Predict a plan with each fact 10 % worse and better, other software, nodes and lengths."""
    execution = plan.problem.inputs.profile.execution
    names = tuple(f"execution.{name}" for name in vars(execution) if name.endswith(_SOFTWARE))
    kind = plan.workload.profile_kind
    facts = [
        *_FACTS,
        _SpecNumber("launches and overheads of the software", "hardware", kind, names, low=True),
    ]
    changed = [_scale_spec_number(plan, fact, burst) for fact in facts]
    others = _software_alternatives(plan, evaluation, row, burst)
    terms = [*_number_formats(plan, row, burst), *_contract_sensitivities(plan, burst)]
    return [
        *changed,
        *others,
        *terms,
        *_node_count_sensitivities(plan, evaluation, row, burst),
        *_length_sensitivities(plan, burst),
    ]


def _number_formats(plan: Plan, row: Row, burst: int | None) -> Iterator[Sensitivity]:
    """Predict the plan with each other common number format."""
    name = plan.workload.precision
    if name not in row:
        return
    others = [
        value for value in glossary()[name].common_values.split() if value != str(row.get(name))
    ]
    outcomes = {
        f"{name} {other}": predict_outcome(
            plan,
            with_answers(precision=None, settings={**plan.request.settings, name: other}),
            burst,
        )
        for other in others
    }
    yield Sensitivity(name=name, group="question", outcomes=outcomes)


def contract_outcomes(plan: Plan, burst: int | None = None) -> dict[str, Outcome]:
    """Predict the plan under each other contract that has a price for its GPU.

    A price that the request states applies only to the contract of the plan.
    """
    request, outcomes = plan.request, dict[str, Outcome]()
    contract_of_plan = plan.problem.sources[0].site.contract
    price = with_contract(request.price, contract_of_plan)
    for contract in CONTRACTS:
        if contract == contract_of_plan:
            continue
        reached = predict_outcome(plan, with_answers(contract=contract, price=price), burst)
        if reached.row is not None and any(
            math.isfinite(number_or_nan(reached.row.get(name))) for name in _COSTS
        ):
            outcomes[contract] = reached
    return outcomes


def _contract_sensitivities(plan: Plan, burst: int | None) -> Iterator[Sensitivity]:
    outcomes = contract_outcomes(plan, burst)
    if outcomes:
        named = {f"contract {contract}": outcome for contract, outcome in outcomes.items()}
        yield Sensitivity(name="contract", group="question", outcomes=named)


def _software_alternatives(
    plan: Plan, evaluation: Evaluation, row: Row, burst: int | None
) -> Iterator[Sensitivity]:
    """Predict the plan with each alternative setting of its software, one at a time."""
    for description, other in plan.workload.others(evaluation.source, row).items():
        changed = with_answers(settings={**plan.request.settings, **other})
        outcomes = {description: predict_outcome(plan, changed, burst)}
        yield Sensitivity(name=next(iter(other)), group=SOFTWARE, outcomes=outcomes)


def _scale_spec_number(plan: Plan, fact: _SpecNumber, burst: int | None) -> Sensitivity:
    """Predict the plan with a number of a spec 10 % worse and 10 % better."""
    sign = -1 if fact.low else 1
    factors = {"10 % worse": 1 - sign * STEP, "10 % better": 1 + sign * STEP}
    outcomes = {
        description: predict_outcome(plan, with_scaled_specs(fact.kind, fact.paths, factor), burst)
        for description, factor in factors.items()
    }
    return Sensitivity(name=fact.name, group=fact.group, outcomes=outcomes)


def _length_sensitivities(plan: Plan, burst: int | None) -> Iterator[Sensitivity]:
    """Predict the plan with each sequence length [tokens] halved and doubled."""
    work = plan.problem.inputs.workload
    for name in plan.workload.lengths:
        current = getattr(work, name)
        if not current:  # prompts that are embedded or scored have no answer
            continue
        title = name.replace("_", " ")
        tried = (max(current // 2, 1), 2 * current)
        counts = {f"{title} {count:,} instead of {current:,}": count for count in tried}
        outcomes = {
            description: predict_outcome(plan, with_answers(**{name: count}), burst)
            for description, count in counts.items()
        }
        yield Sensitivity(name=title, group="question", outcomes=outcomes)


def _node_count_sensitivities(
    plan: Plan, evaluation: Evaluation, row: Row, burst: int | None
) -> Iterator[Sensitivity]:
    """Predict the plan on one node less and one more, or the next numbers allowed."""
    if (
        not plan.counts or evaluation.source.mesh is None
    ):  # pools would have other numbers of workers
        return
    node = plan.problem.inputs.machine.cluster.gpus_per_node
    current = int(number_or_nan(row["num_gpus"]))
    outcomes: dict[str, Outcome] = {}
    sides = ((-1, "fewer"), (1, "more"))
    for sign, side in sides if current > node else sides[1:]:
        steps = {1: predict_outcome(plan, with_answers(num_gpus=current + sign * node), burst)}
        if steps[1].row is None:
            # The next number of GPUs that the rules allow, where it is near.
            ahead = np.arange(1.0, min(_MOST_NODES, max(current // node, 2)) + 1)
            tried = replace(
                evaluation.candidates.configurations, num_gpus=current + sign * ahead * node
            )
            allowed = np.broadcast_to(evaluation.source.broken(tried), tried.shape) == 0
            for further in map(int, ahead[allowed][:1]):
                steps[further] = predict_outcome(
                    plan, with_answers(num_gpus=current + sign * further * node), burst
                )
        for count, reached in steps.items():
            noun = "node" if count == 1 else "nodes"
            outcomes[f"{count} {noun} {side}: {current + sign * count * node:,} GPUs"] = reached
    yield Sensitivity(name="number of nodes", group="question", outcomes=outcomes)


def _relative_changes(
    row: Row | None, base_row: Row, columns: tuple[str, ...]
) -> dict[str, float | None]:
    """Return the relative change from ``base_row`` by column; None: unknown; {}: no row."""
    if row is None:
        return {}
    return {name: relative_change(row[name], base_row[name]) for name in columns}


def relative_change(value: object, base: object) -> float | None:
    """The relative change from one value to another; None where one is unknown or 0."""
    now, before = number_or_nan(value), number_or_nan(base)
    return now / before - 1 if before and math.isfinite(now) and math.isfinite(before) else None

"""What a plan becomes where hardware, terms or the question are a little other than they are.

Nothing is linearised: each change is a prediction of its own, of the same configuration.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from planner.base.records import record
from planner.explaining.changed import Outcome, asked, outcome, scaled
from planner.optimize.collector import known_value
from planner.plan.plan import Plan
from planner.workloads.base import Evaluation

SOFTWARE = "software"
"""The group of what the same software could do otherwise."""
STEP = 0.1
"""How much better or worse a number is tried."""

_MOST_NODES = 512
_SOFTWARE = ("launch_time", "overhead")


@record(kw_only=True)
class Sensitivity:
    """A fact that is changed, and what the plan then reaches, by words such as ``10 % better``.

    ``group``: ``hardware``, ``terms``, ``software`` or ``question``.
    """

    name: str
    group: str
    outcomes: Mapping[str, Outcome]

    def to_dict(self, own: Mapping[str, Any], columns: tuple[str, ...]) -> dict[str, Any]:
        """Plain words and numbers, as JSON takes them; ``changes`` are shares of the plan's own."""
        return {
            "fact": self.name,
            "group": self.group,
            "outcomes": [
                {
                    "change": words,
                    "impossible": found.reason,
                    "predictions": _plain(found.row, columns),
                    "changes": _changes(found.row, own, columns),
                }
                for words, found in self.outcomes.items()
            ],
        }

    def moved(self, own: Mapping[str, Any], columns: tuple[str, ...]) -> float:
        """The largest relative change of a column."""
        moves = (
            abs(change)
            for found in self.outcomes.values()
            for change in _changes(found.row, own, columns).values()
            if change is not None
        )
        return max(moves, default=0.0)


@record()
class _Fact:
    """Numbers of specs that are better when higher, or lower where ``low``."""

    name: str
    group: str
    kind: str
    paths: tuple[str, ...]
    low: bool = False


_FACTS = (
    _Fact("GPU: peak and memory bandwidth", "hardware", "gpu",
          ("peak_flops.*", "fp16_accumulate_flops", "memory_bandwidth")),
    _Fact("peak FLOP/s", "hardware", "gpu", ("peak_flops.*", "fp16_accumulate_flops")),
    _Fact("memory bandwidth", "hardware", "gpu", ("memory_bandwidth",)),
    _Fact("memory capacity", "hardware", "gpu", ("memory_capacity",)),
    _Fact("link bandwidth", "hardware", "cluster", ("scale_up.bandwidth",)),
    _Fact("network bandwidth", "hardware", "cluster", ("scale_out.bandwidth",)),
    _Fact("network latency", "hardware", "cluster",
          ("scale_out.base_latency", "scale_out.latency_per_doubling"), low=True),
    _Fact("host link", "hardware", "gpu", ("host.bandwidth", "host.memory_bandwidth")),
    _Fact("price", "terms", "offer", ("value", "low", "high"), low=True),
)  # fmt: skip


def sensitivities(
    plan: Plan, found: Evaluation, row: Mapping[str, Any], burst: int | None = None
) -> list[Sensitivity]:
    """Each fact 10 % worse and better, other software, numbers of nodes and lengths."""
    facts = [*_FACTS, _software(plan)]
    changed = [_scaled(plan, fact, burst) for fact in facts]
    others = _others(plan, found, row, burst)
    return [*changed, *others, *_nodes(plan, found, row, burst), *_lengths(plan, burst)]


def _others(
    plan: Plan, found: Evaluation, row: Mapping[str, Any], burst: int | None
) -> Iterator[Sensitivity]:
    """Each way in which the same software could compute otherwise."""
    for words, other in plan.workload.others(found.source, row).items():
        changed = asked(settings={**plan.request.settings, **other})
        outcomes = {words: outcome(plan, changed, burst)}
        yield Sensitivity(name=next(iter(other)), group=SOFTWARE, outcomes=outcomes)


def _software(plan: Plan) -> _Fact:
    """Launches and overheads of the framework or engine."""
    execution = plan.problem.setting.profile.execution
    names = tuple(f"execution.{name}" for name in vars(execution) if name.endswith(_SOFTWARE))
    kind = plan.workload.profile_kind
    return _Fact("launches and overheads of the software", "hardware", kind, names, low=True)


def _scaled(plan: Plan, fact: _Fact, burst: int | None) -> Sensitivity:
    sign = -1 if fact.low else 1
    factors = {"10 % worse": 1 - sign * STEP, "10 % better": 1 + sign * STEP}
    outcomes = {
        words: outcome(plan, scaled(fact.kind, fact.paths, factor), burst)
        for words, factor in factors.items()
    }
    return Sensitivity(name=fact.name, group=fact.group, outcomes=outcomes)


def _lengths(plan: Plan, burst: int | None) -> Iterator[Sensitivity]:
    work = plan.problem.setting.workload
    for name in plan.workload.lengths:
        own = getattr(work, name)
        title = name.replace("_", " ")
        tried = (max(own // 2, 1), 2 * own)
        counts = {f"{title} {count:,} instead of {own:,}": count for count in tried}
        outcomes = {
            words: outcome(plan, asked(**{name: count}), burst) for words, count in counts.items()
        }
        yield Sensitivity(name=title, group="question", outcomes=outcomes)


def _nodes(
    plan: Plan, found: Evaluation, row: Mapping[str, Any], burst: int | None
) -> Iterator[Sensitivity]:
    """A node less and a node more; where rules forbid that, the next numbers that they allow."""
    if not plan.counts or found.source.mesh is None:  # pools would have other numbers of workers
        return
    node, own = plan.problem.setting.machine.cluster.gpus_per_node, int(row["num_gpus"])
    outcomes: dict[str, Outcome] = {}
    sides = ((-1, "fewer"), (1, "more"))
    for sign, side in sides if own > node else sides[1:]:
        steps = {1: outcome(plan, asked(num_gpus=own + sign * node), burst)}
        if steps[1].row is None and (further := _next_possible(found, own, sign * node)):
            steps[further] = outcome(plan, asked(num_gpus=own + sign * further * node), burst)
        for number, reached in steps.items():
            noun = "node" if number == 1 else "nodes"
            outcomes[f"{number} {noun} {side}: {own + sign * number * node:,} GPUs"] = reached
    yield Sensitivity(name="number of nodes", group="question", outcomes=outcomes)


def _next_possible(found: Evaluation, own: int, step: int) -> int:
    """How many such steps lead to the next number of GPUs that the rules allow; 0: none near."""
    configurations = found.candidates.configurations
    steps = np.arange(1.0, min(_MOST_NODES, max(own // abs(step), 2)) + 1)
    tried = replace(configurations, num_gpus=own + steps * step)
    allowed = np.flatnonzero(np.broadcast_to(found.source.broken(tried), tried.shape) == 0)
    return int(steps[allowed[0]]) if allowed.size else 0


def _plain(row: Mapping[str, Any] | None, columns: tuple[str, ...]) -> dict[str, Any] | None:
    return None if row is None else {name: known_value(row[name]) for name in columns}


def _changes(
    row: Mapping[str, Any] | None, own: Mapping[str, Any], columns: tuple[str, ...]
) -> dict[str, float | None]:
    """By column the relative change; None where there is none to tell."""
    if row is None:
        return {}
    return {name: change(row[name], own[name]) for name in columns}


def change(value: Any, own: Any) -> float | None:
    """The relative change from one value to another; None where one is unknown or 0."""
    if (
        not all(isinstance(one, int | float) and np.isfinite(one) for one in (value, own))
        or not own
    ):
        return None
    return float(value / own - 1)

"""What sizing finds: a plan that keeps every limit, and how far it is from missing one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from planner.base import text
from planner.base.arrays import first
from planner.base.cells import Row, Value, number
from planner.base.records import record
from planner.confidence.intervals import MEDIAN
from planner.decide.open_facts import MovingFact
from planner.optimize.result_columns import full_columns
from planner.optimize.source import Candidates, first_row
from planner.optimize.sureness import is_unknown, sure_value
from planner.question.terms import ENDINGS, glossary, terms_about
from planner.workloads.plan import Plan
from planner.workloads.scenes import EACH_ITS_OWN

if TYPE_CHECKING:
    from planner.decide.sizing.day import Day

RATE = "request_rate"
SUFFIXES = {unit: ENDINGS[unit] for unit in ("d", "s", "GiB", "USD")}
"""By the unit of a limit what the names of its columns end with, and their unit."""

# What a plan is made for; prices, networks and software are told by fleet.
_OF_WORK = terms_about("work")
FEWEST, CHEAPEST, FASTEST = "fewest", "cheapest", "fastest"


@record(kw_only=True)
class Margin:
    """What a plan leaves of a limit, in SI units.

    ``predicted`` is the median, ``sure`` what the share ``confidence`` of runs keeps, ``sign`` 1
    of a bound from above and -1 from below; ``unit`` as the table of terms has it.
    ``is_known``: published runs tell of its errors; else ``sure`` is the prediction.
    """

    name: str
    unit: str
    sign: int
    bound: float
    predicted: float
    sure: float
    is_known: bool

    @property
    def spare(self) -> float:
        """What is left until the bound at the confidence; at least 0 where it is kept."""
        return self.sign * (self.bound - self.sure)

    @property
    def share(self) -> float:
        """The same as a share of the bound."""
        return self.spare / self.bound if self.bound else math.inf


@record(kw_only=True)
class Fleet:
    """A plan that keeps every limit: its result columns with intervals, and its margins.

    ``asked`` is what it is asked, in sentences, ``chosen`` what nobody gave of that.
    """

    row: Row
    margins: tuple[Margin, ...]
    asked: tuple[str, ...] = ()
    chosen: Mapping[str, str] = field(default_factory=dict)

    @property
    def num_gpus(self) -> int:
        """GPUs of the plan."""
        return int(number(self.row["num_gpus"]))

    @property
    def cost(self) -> float:
        """USD of a run, or USD per hour of a service; NaN where the price is unknown."""
        return number(self.row.get("cost_usd", self.row.get("cost_per_hour_usd")))

    @property
    def tightest(self) -> Margin | None:
        """The limit with the smallest share to spare; None where there is no limit."""
        return min(self.margins, key=lambda margin: margin.share, default=None)

    @property
    def spare(self) -> float:
        """What is left of the tightest limit, as a share of it; infinite without limits."""
        return math.inf if self.tightest is None else self.tightest.share

    @classmethod
    def of(cls, plan: Plan, candidates: Candidates) -> Fleet:
        """The fleet of one configuration of a plan."""
        source = candidates.source
        row = first_row(full_columns(candidates.columns(), [source]))
        row = {**row, **_grounds(plan, candidates, int(number(row["num_gpus"])))}
        return cls(
            row=row,
            margins=tuple(_margins(plan, candidates)),
            asked=tuple(plan.workload.wording.asked(source.setting)),
            chosen={
                name: told
                for name in _OF_WORK
                if (told := plan.defaults.get(name)) and told != EACH_ITS_OWN
            },
        )


@record(kw_only=True)
class Size:
    """What it takes of one GPU under one contract.

    ``fewest`` has the fewest GPUs, ``cheapest`` the lowest cost, ``fastest`` the shortest time
    within a budget; None where there is none, or, without any, where ``reason`` says why.
    ``tried`` are the numbers of GPUs that were looked at, ascending, ``not_tried`` whole nodes
    below the fewest that might be enough too. ``is_other_contract``: nobody named a contract, and
    no price is known under the usual one. ``precision`` is that of the cheapest run beside the
    other one, where nobody gave it and it moves the run. ``day`` is a day of a service whose load
    changes, if that was asked for.
    """

    gpu: str
    contract: str
    fewest: Fleet | None = None
    cheapest: Fleet | None = None
    fastest: Fleet | None = None
    reason: str = ""
    tried: tuple[int, ...] = ()
    not_tried: tuple[int, ...] = ()
    is_other_contract: bool = False
    precision: MovingFact | None = None
    day: Day | None = None

    @property
    def choices(self) -> dict[str, Fleet]:
        """The fleets there are by what they are best at; what is best at several has one entry."""
        found: dict[str, Fleet] = {}
        for name in (FEWEST, CHEAPEST, FASTEST):
            fleet = getattr(self, name)
            if fleet is None:
                continue
            same = next((other for other, known in found.items() if known is fleet), None)
            if same is not None:
                found = {
                    f"{same}, {name}" if other == same else other: known
                    for other, known in found.items()
                }
            else:
                found[name] = fleet
        return found

    @property
    def order(self) -> tuple[bool, float, float]:
        """What sizes are sorted by: cost, then GPUs; what has none comes last."""
        best = self.cheapest or self.fewest
        if best is None:
            return True, math.inf, math.inf
        cost = best.cost if self.day is None else self.day.cost
        return False, math.inf if math.isnan(cost) else cost, float(best.num_gpus)

    def rows(self, confidence: float) -> Iterator[dict[str, Value]]:
        """A row of columns for each choice; one with the reason where there is none."""
        head = {"gpu": self.gpu, "contract": self.contract}
        if not self.choices:
            yield {**head, "choice": "", "feasible": False, "reason": self.reason}
        for name, fleet in self.choices.items():
            told: dict[str, Value] = {**head, "choice": name, "feasible": True, "reason": ""}
            yield {**told, "confidence": confidence, **_columns(fleet.margins), **fleet.row}


def _grounds(plan: Plan, candidates: Candidates, num_gpus: int) -> dict[str, Value]:
    """What the predictions of a plan rest on."""
    source = candidates.source
    sure = source.confidence(num_gpus)
    return {
        "basis": None if sure is None else sure.basis,
        "assumed": text.assumed_in_short(plan.assumed),
    }


def _columns(margins: Iterable[Margin]) -> dict[str, float]:
    """Limits with what is sure and what is left of them, in units that the names have."""
    found = {}
    for margin in margins:
        end, scale = SUFFIXES.get(glossary()[margin.name].unit, ("", 1.0))
        for word, value in (
            ("limit", margin.bound),
            ("sure", margin.sure),
            ("spare", margin.spare),
        ):
            found[f"{word}_{margin.name}{end}"] = value / scale
    return found


def _margins(plan: Plan, candidates: Candidates) -> Iterator[Margin]:
    source = candidates.source
    for limit in plan.problem.constraints:
        yield Margin(
            name=limit.name,
            unit=limit.unit,
            sign=limit.sign,
            bound=limit.bound,
            predicted=first(candidates.value(limit.name)),
            sure=first(limit.judged(candidates)),
            is_known=not is_unknown(source, limit.name, limit.confidence, limit.sign),
        )
    rate, confidence = plan.request.request_rate, plan.request.limit_confidence
    if rate is None or any(limit.name == RATE for limit in plan.problem.constraints):
        return
    yield Margin(
        name=RATE,
        unit="1/s",
        sign=-1,
        bound=rate,
        predicted=first(candidates.value(RATE)),
        sure=first(sure_value(candidates, RATE, confidence, -1)),
        is_known=confidence == MEDIAN or not is_unknown(source, RATE, confidence, -1),
    )

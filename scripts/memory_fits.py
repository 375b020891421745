"""Fit the distribution of needed over predicted memory to published runs.

It is log-normal (`planner.confidence.intervals.MemoryErrors`), and one distribution gives both the
90 % interval of the memory and the probability that a plan fits. A run that measured its memory
contributes the density; one that only ran needed less than the memory, one that ran out needed
more. Kinds with few runs are drawn to the wider kind.

A few rows leave out what their run did. In the likelihood a share of all runs therefore has errors
of one wide distribution, so that such rows do not widen that of a kind: without it, twice as many
runs of publishers left out are judged wrongly.

The likeliest standard deviation describes most runs of the publishers that it was fitted to. The
next publisher differs from them as they differ from each other. A factor therefore multiplies
standard deviations: 90 % intervals made without a publisher then hold 90 % of its measured runs,
where a publisher counts by sqrt(runs).
Training from scratch, fine-tuning and serving have factors of their own, and so have plans whose
software has no published runs of that work.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist

import numpy as np
from publishers import publisher
from start_logs import logged_errors

from planner.base.arrays import BoolArray, FloatArray
from planner.base.units import GIB
from planner.confidence.error_classes import batching_kind
from planner.confidence.intervals import LEVEL
from planner.formulas.normal import normal_upper_tail
from planner.validation.accuracy import ComparedRun
from planner.validation.inference.cases import InferenceCase
from planner.validation.run_tables import MEMORY

FEWEST_RAN_OUT = 50
"""Runs that ran out, below which a table says too little to balance verdicts by."""
FEWEST = 5
"""Runs that tell anything of what a kind needs, below which the wider kind stands for it."""
# Standard deviations of how kinds differ from wider ones: of the center in standard deviations of
# the wider kind, and of the logarithm of the standard deviation. Chosen by the log score of
# publishers left out.
_CENTERS, _DEVIATIONS = 1.0, 0.3
# The share of rows that leave out what their run did, and the standard deviation of their errors.
_STRAY, _STRAY_DEVIATION = 0.05, 0.5
_TAIL = NormalDist().inv_cdf((1 + LEVEL) / 2)
# Runs that need less than this share of the memory tell nothing: all plausible errors are smaller.
_FAR = 1.0
_ABSURD = math.log(10)
# Runs that ran in less than half of what is predicted did something that their rows do not say.
_LEAST = -math.log(2)
SERVING = "serving"
Key = tuple[str, str, str]
Fit = tuple[float, float]
Group = tuple[str, bool]
"""A work, and whether there are runs of this work with the software."""


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a run ended: ``room`` is the logarithm of the usable over the predicted memory.

    ``error`` is that of measured over predicted memory, NaN where it was not measured. ``keys``
    are the kinds it belongs to, the widest first; ``of_software``: it tells of the last alone.
    ``work``: training from scratch, fine-tuning or serving.
    """

    keys: tuple[Key, ...]
    publisher: str
    room: float
    error: float
    ran_out: bool
    of_software: bool = False
    work: str = SERVING

    @property
    def tells(self) -> bool:
        """Whether its ending says something of the errors."""
        return self.ran_out or not math.isnan(self.error) or _LEAST < self.room < _FAR


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """Of ``runs`` that measured their memory: the share ``inside`` 90 % intervals made without
    their publishers, and the median of upper over lower end."""

    runs: int
    inside: float
    width: float


@dataclass(frozen=True, kw_only=True)
class Judged:
    """How well probabilities of publishers left out hold, and the default that follows.

    ``factors`` multiply standard deviations, by `Group`. ``brier`` and ``log_score`` are means over
    the runs. ``refused`` of those that ran and ``said_to_fit`` of those that ran out are judged
    wrongly at the ``confidence`` where these shares are closest. ``bins``: the least probability,
    the runs, their mean, the share that ran. ``coverage``: of all measured runs and by their work.
    """

    factors: Mapping[Group, float]
    brier: float
    log_score: float
    confidence: float
    ran: int
    refused: int
    ran_out: int
    said_to_fit: int
    bins: tuple[tuple[float, int, float, float], ...]
    coverage: Mapping[str, Coverage]


def endings(rows: Sequence[ComparedRun]) -> list[Ending]:
    """Those of all rows that say whether they ran, or how much memory they needed."""
    return [found for row in rows if (found := _ending(row)) is not None]


def logged_endings() -> list[Ending]:
    """Those of engines that logged at their start what they had left for a cache."""
    found = []
    for engine, source, room, error in logged_errors():
        keys = [("", "", ""), ("continuous", "", ""), ("continuous", engine, "")]
        found.append(
            Ending(
                keys=tuple(keys),
                publisher=source,
                room=room,
                error=error,
                ran_out=False,
                of_software=True,
            )
        )
    return found


def fits(found: Sequence[Ending]) -> dict[Key, tuple[Fit, int, int]]:
    """Center and spread of every kind with enough runs, these runs, and those that ran out."""
    kinds: defaultdict[Key, list[Ending]] = defaultdict(list)
    wider: dict[Key, Key] = {}
    for ending in found:
        if ending.tells:
            for at, key in enumerate(ending.keys):
                if not ending.of_software or at == len(ending.keys) - 1:
                    kinds[key].append(ending)
                wider[key] = ending.keys[max(at - 1, 0)]
    made: dict[Key, tuple[Fit, int, int]] = {}
    for key in sorted(kinds, key=lambda key: (sum(map(bool, key)), key)):
        members = kinds[key]
        above = wider[key]
        while above not in made and above != wider[above]:
            above = wider[above]
        if len(members) < FEWEST and any(key):
            continue
        prior = made[above][0] if any(key) else None
        out = sum(one.ran_out for one in members)
        made[key] = _fitted(members, prior), len(members), out
    return made


def judged(found: Sequence[Ending], confidence: float | None = None) -> Judged:
    """Each run by what the other publishers' runs say, at a confidence or at the balanced one."""
    centers, likeliest, groups = _left_out(found)
    room, error = (np.array([getattr(one, name) for one in found]) for name in ("room", "error"))
    factors = _widening(found, np.abs(error - centers) / likeliest, groups)
    deviations = likeliest * np.array([factors[group] for group in groups])
    chances = normal_upper_tail((centers - room) / deviations)
    ran = np.array([not one.ran_out for one in found])
    with np.errstate(divide="ignore"):
        scores = -np.log(np.where(ran, chances, 1 - chances).clip(1e-12))
    if confidence is None or (~ran).sum() >= FEWEST_RAN_OUT:
        confidence = _balanced(chances, ran)
    works = np.array([one.work for one in found])
    names = ("", *dict.fromkeys(works.tolist()))
    return Judged(
        factors=factors,
        brier=float(np.mean((chances - ran) ** 2)),
        log_score=float(np.mean(scores)),
        confidence=confidence,
        ran=int(ran.sum()),
        refused=int((chances[ran] < confidence).sum()),
        ran_out=int((~ran).sum()),
        said_to_fit=int((chances[~ran] >= confidence).sum()),
        bins=tuple(_bins(chances, ran)),
        coverage={
            name or "all": _coverage(
                *(values[(works == name) | (not name)] for values in (error, centers, deviations))
            )
            for name in names
        },
    )


def _widening(
    found: Sequence[Ending], away: FloatArray, groups: Sequence[Group]
) -> dict[Group, float]:
    """The factors on standard deviations with which 90 % intervals hold 90 % of measured runs.

    ``away``: the error of each run in standard deviations, NaN if it was not measured. A group
    with few measured runs has the largest factor of its work.
    """
    made = {}
    for group in dict.fromkeys(groups):
        mine = [i for i, each in enumerate(groups) if each == group and not np.isnan(away[i])]
        if len(mine) >= FEWEST:
            weights = _publisher_weights([found[i] for i in mine])
            made[group] = round(_weighted_quantile(away[mine], weights, LEVEL) / _TAIL, 3)
    works = {work for work, _ in groups}
    largest = {work: max(made[group] for group in made if group[0] == work) for work in works}
    groups = [(work, own) for work in sorted(works) for own in (False, True)]
    return {group: made.get(group, largest[group[0]]) for group in groups}


def _weighted_quantile(values: FloatArray, weights: FloatArray, share: float) -> float:
    """The least of the values up to which they have this share of all weights."""
    order = np.argsort(values)
    shares = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][np.searchsorted(shares, share)])


def _publisher_weights(members: Sequence[Ending]) -> FloatArray:
    """The weight of each run: all of a publisher weigh as much as the root of their number."""
    sizes: Mapping[str, int] = Counter(one.publisher for one in members)
    return np.array([sizes[one.publisher] ** -0.5 for one in members])


def _coverage(error: FloatArray, centers: FloatArray, deviations: FloatArray) -> Coverage:
    measured = ~np.isnan(error)
    away, reach = np.abs(error - centers)[measured], _TAIL * deviations[measured]
    return Coverage(
        runs=int(measured.sum()),
        inside=float(np.mean(away <= reach)),
        width=float(np.exp(2 * np.median(reach))),
    )


def _ending(row: ComparedRun) -> Ending | None:
    prediction, case = row.prediction, row.prediction.case
    measured = row.ratio(next(one for one in row.kind.compared if MEMORY in one.names))
    if case is None or prediction.reason or (row.ran_out is None and measured is None):
        return None
    if not prediction.needed_memory > 0 or row.run.flag("gpu_assumed"):
        return None
    error = -math.log(measured) if measured else math.nan
    needed = row.measured.get(MEMORY, 0.0)
    if needed * GIB >= prediction.capacity:
        # A full GPU says what it has, not what was needed.
        error = math.nan
    label = case.software.label
    if isinstance(case, InferenceCase):
        scale, work, whole = "", SERVING, (batching_kind(case.engine), label, "")
    else:
        scale, work = case.keys[2:4]
        whole = (case.kind, label, scale)
    levels = range(4 if scale else 3)
    return Ending(
        keys=tuple(_key(whole, level) for level in levels),
        publisher=publisher(row),
        room=math.log(prediction.capacity / prediction.needed_memory),
        error=error if abs(error) < _ABSURD else math.nan,
        ran_out=bool(row.ran_out),
        work=work,
    )


def _key(whole: Key, level: int) -> Key:
    kind, software, scale = (name if at < level else "" for at, name in enumerate(whole))
    return kind, software, scale


def _left_out(found: Sequence[Ending]) -> tuple[FloatArray, FloatArray, list[Group]]:
    """Center, standard deviation and group for each run, fitted to other publishers' runs."""
    made = np.full((2, len(found)), np.nan)
    groups: list[Group] = [("", False)] * len(found)
    for name in dict.fromkeys(one.publisher for one in found):
        others = [one for one in found if one.publisher != name]
        known, known_groups = fits(others), software_works(others)
        for at, one in enumerate(found):
            if one.publisher == name:
                key = next(key for key in one.keys[::-1] if key in known)
                made[:, at] = known[key][0]
                groups[at] = one.work, (key, one.work) in known_groups
    return made[0], made[1], groups


def software_works(found: Sequence[Ending]) -> set[tuple[Key, str]]:
    """The kinds of a software, each with a work that enough of its runs have.

    All runs of serving are one group.
    """
    counts = Counter((key, one.work) for one in found if one.tells for key in one.keys)
    return {
        (key, work)
        for (key, work), runs in counts.items()
        if work == SERVING or (key[1] and runs >= FEWEST)
    }


def _balanced(chances: FloatArray, ran: BoolArray) -> float:
    """The confidence at which the larger share of wrong verdicts is least, to three digits.

    Of several that are as good the one with the least sum, which refuses the fewest.
    """
    tried = np.arange(0.05, 0.95, 0.001)
    refused = np.searchsorted(np.sort(chances[ran]), tried) / max(ran.sum(), 1)
    fit = 1 - np.searchsorted(np.sort(chances[~ran]), tried) / max((~ran).sum(), 1)
    order = np.lexsort((tried, refused + fit, np.maximum(refused, fit).round(9)))
    return round(float(tried[order[0]]), 3)


def _bins(chances: FloatArray, ran: BoolArray) -> Iterator[tuple[float, int, float, float]]:
    edges = (0.0, 0.2, 0.5, 0.65, 0.8, 0.9, 0.97, 0.99, 1.01)
    for low, high in pairwise(edges):
        inside = (chances >= low) & (chances < high)
        if inside.any():
            yield low, int(inside.sum()), float(chances[inside].mean()), float(ran[inside].mean())


def _fitted(members: Sequence[Ending], prior: Fit | None) -> Fit:
    """The likeliest center and standard deviation, on ever finer grids.

    Publishers count by sqrt(runs).
    """
    weights = _publisher_weights(members)
    room, error, out = (
        np.array([getattr(one, name) for one in members]) for name in ("room", "error", "ran_out")
    )
    centers, logs = np.linspace(-0.5, 0.5, 41), np.linspace(math.log(0.02), math.log(1.0), 33)
    stray = _log_likelihood(np.zeros((1, 1)), np.full((1, 1), _STRAY_DEVIATION), room, error, out)
    for _ in range(3):
        center, log = (axis.ravel()[:, None] for axis in np.meshgrid(centers, logs, indexing="ij"))
        likely = _log_likelihood(center, np.exp(log), room, error, out)
        total = np.logaddexp(math.log(1 - _STRAY) + likely, math.log(_STRAY) + stray) @ weights
        if prior is not None:
            total -= 0.5 * ((center[:, 0] - prior[0]) / (_CENTERS * prior[1])) ** 2
            total -= 0.5 * ((log[:, 0] - math.log(prior[1])) / _DEVIATIONS) ** 2
        best = int(np.argmax(total))
        found = float(center[best, 0]), float(log[best, 0])
        steps = centers[1] - centers[0], logs[1] - logs[0]
        centers, logs = (
            np.linspace(at - step, at + step, 11) for at, step in zip(found, steps, strict=True)
        )
    return found[0], math.exp(found[1])


def _log_likelihood(
    center: FloatArray, deviation: FloatArray, room: FloatArray, error: FloatArray, out: BoolArray
) -> FloatArray:
    """Logarithm of the density of measured errors, else of the probability of the ending."""
    measured = ~np.isnan(error)
    away = (np.where(measured, error, room) - center) / deviation
    likelihood = -0.5 * np.square(away) - np.log(deviation) - 0.5 * math.log(2 * math.pi)
    sides = np.where(out, away, -away)[:, ~measured]
    likelihood[:, ~measured] = _log_upper_tail(sides)
    return np.asarray(likelihood)


def _log_upper_tail(score: FloatArray) -> FloatArray:
    """Logarithm of the probability that a standard normal variable exceeds ``score``."""
    far = np.maximum(score, 10.0)
    series = -0.5 * far**2 - np.log(far * math.sqrt(2 * math.pi)) - far**-2
    return np.where(score > 10.0, series, np.log(normal_upper_tail(np.minimum(score, 10.0))))

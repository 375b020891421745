"""Fit the campaign factor to published GPU-hours and write the page of the campaigns.

Published over predicted GPU-hours of whole campaigns (steps, checkpoints and failures as
`planner.formulas.goodput` has them): the median, every publisher counting the same, and between
what 9 of 10 lie beyond what the intervals of the steps hold already. Each publisher is judged by
the others. Writes docs/reference/campaigns.md and prints the table that
hardware_specs/reliability/published.toml has:

    python scripts/make_campaigns.py
"""

from __future__ import annotations

import csv
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from pooling import student

import planner
from planner.base.csv_cells import number_or_nan
from planner.confidence.intervals import MAX_CONFIDENCE

ROOT = Path(__file__).parents[1]
CAMPAIGNS = ROOT / "scripts" / "published" / "campaigns.csv"
PAGE = ROOT / "docs" / "reference" / "campaigns.md"
_TEXT = """\
# Campaigns

A pre-training campaign takes more GPU-hours than its steps and the failures of its GPUs. Restarts
by hand, evaluations, slow nodes and repeated parts add to it. The **campaign factor is
{typical:.2f} [{low:.2f} to {high:.2f}]**: published GPU-hours over those that `planner`
predicts for steps, checkpoints and [failures](../how-to/failures.md). It is one number for all
models: the median, with every publisher counting the same, and the range of 9 of 10.

The factor is in cost, `campaign_gpu_hours`, calendar time and energy of pre-training, and in their
intervals. `--campaign-factor 1` switches it off, `--campaign-factor 1.3` sets it. `--reliability
ideal` and fine-tuning have none. All plans of a comparison share it, so it decides no choice.

{number} campaigns of {publishers} publishers. With the factor of the other publishers half of them
are within {error:.0f} %, without it within {plain:.0f} %; {inside} of {number} are in their 90 %
interval.

Layouts are those that a search recommends for the stated software and GPUs, unless a paper states
its own. Unknown software counts as Megatron-LM, an unknown number of GPUs as 2,048. A publisher's
own software may be better or worse, and the spread includes that. GPU-hours are those of the
sources. Not all batches, lengths and layouts in `scripts/published/campaigns.csv` were checked
against the papers.

"""


@dataclass(frozen=True, kw_only=True)
class Campaign:
    """A published campaign, in GPU-hours, beside what its steps and failures are predicted to take.

    ``step_ends`` are the ends of the interval of the step time as factors.
    """

    name: str
    publisher: str
    setup: str
    published: float
    predicted: float
    step_ends: tuple[float, float]
    basis: str
    runs: int
    source: str

    @property
    def log(self) -> float:
        """Logarithm of published over predicted."""
        return math.log(self.published / self.predicted)


@dataclass(frozen=True, kw_only=True)
class Factor:
    """The factor on predicted GPU-hours, and between what it lies."""

    typical: float
    low: float
    high: float


def campaigns() -> list[Campaign]:
    """All campaigns of the table, predicted without a campaign factor."""
    with CAMPAIGNS.open(encoding="utf-8", newline="") as file:
        return [_predicted(row) for row in csv.DictReader(file)]


def _predicted(row: dict[str, str]) -> Campaign:
    asked: dict[str, object] = {
        name: row[name] for name in ("model", "gpu", "framework", "precision")
    }
    counts: dict[str, Callable[[str], float]] = {
        "num_gpus": int, "total_tokens": float, "sequence_length": int, "global_batch_size": int
    }  # fmt: skip
    asked |= {name: read(row[name]) for name, read in counts.items() if row[name]}
    settings = dict(one.split("=") for one in row["settings"].split())
    found = planner.search(**asked, settings=settings, campaign_factor=1)  # type: ignore[arg-type]
    best, count = found.recommended, int(row["num_gpus"])
    sure = best and best.source.confidence(count)
    if best is None or sure is None:
        raise ValueError(f"{row['campaign']} has no plan.")
    return Campaign(
        name=row["campaign"],
        publisher=row["publisher"],
        setup=f"{count:,} x {row['gpu']}, {best.row['framework']}, {row['precision']}",
        published=float(row["gpu_hours"]),
        predicted=number_or_nan(best.row["campaign_gpu_hours"]),
        step_ends=sure.factors["step_time"],
        basis=sure.basis,
        runs=sure.runs,
        source=row["source"],
    )


def fitted(known: Sequence[Campaign]) -> Factor:
    """The factor that campaigns tell, every publisher counting the same."""
    weights = _weights(known)
    logs = [one.log for one in known]
    middle = _quantile(logs, weights, 0.5)
    away, wider = [], student(len({one.publisher for one in known}), MAX_CONFIDENCE)
    for side in (-1, 1):
        needed = [_beyond(side * (one.log - middle), one.step_ends[side > 0]) for one in known]
        away.append(wider * _quantile(needed, weights, MAX_CONFIDENCE))
    low, high = middle - away[0], middle + away[1]
    return Factor(typical=math.exp(middle), low=math.exp(low), high=math.exp(high))


def _beyond(error: float, step_end: float) -> float:
    """What an error to one side needs beside the interval of the step; errors are independent."""
    own = error**2 - math.log(step_end) ** 2
    return math.sqrt(own) if error > 0 and own > 0 else 0.0


def left_out(known: Sequence[Campaign]) -> list[tuple[Campaign, float, bool]]:
    """Each campaign with its error by the factor of other publishers, and whether it is inside."""
    found = []
    for one in known:
        factor = fitted([other for other in known if other.publisher != one.publisher])
        error = one.log - math.log(factor.typical)
        ends = [
            math.hypot(math.log(own / factor.typical), math.log(step))
            for own, step in zip((factor.low, factor.high), one.step_ends, strict=True)
        ]
        found.append((one, error, -ends[0] <= error <= ends[1]))
    return found


def _weights(known: Sequence[Campaign]) -> list[float]:
    sizes = Counter(one.publisher for one in known)
    return [1 / sizes[one.publisher] for one in known]


def _quantile(values: Sequence[float], weights: Sequence[float], share: float) -> float:
    """The weighted quantile, between the middles of neighbours."""
    pairs = sorted(zip(values, weights, strict=True))
    total, below, places = sum(weights), 0.0, list[float]()
    for _, weight in pairs:
        places.append((below + weight / 2) / total)
        below += weight
    for at in range(1, len(pairs)):
        if share <= places[at]:
            part = (share - places[at - 1]) / (places[at] - places[at - 1])
            return pairs[at - 1][0] + max(part, 0.0) * (pairs[at][0] - pairs[at - 1][0])
    return pairs[-1][0]


def page(known: Sequence[Campaign]) -> str:
    """The page: the factor, how it is judged, and the campaigns."""
    factor, judged = fitted(known), left_out(known)
    errors = [abs(math.expm1(error)) for _, error, _ in judged]
    inside = sum(held for _, _, held in judged)
    plain = median(abs(math.expm1(one.log)) for one in known)
    publishers = len({one.publisher for one in known})
    groups: defaultdict[str, list[Campaign]] = defaultdict(list)
    for one in known:
        groups[one.basis if one.runs else f"{one.basis}, no run on this GPU"].append(one)
    told = _TEXT.format(
        typical=factor.typical, low=factor.low, high=factor.high,
        number=len(known), publishers=publishers, inside=inside,
        error=100 * median(errors), plain=100 * plain,
    )  # fmt: skip
    lines = [
        *told.splitlines(),
        "| evidence of the steps | campaigns | median of published over predicted | from | to |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, own in sorted(groups.items()):
        ratios = sorted(math.exp(one.log) for one in own)
        lines.append(
            f"| {name} | {len(own)} | {median(ratios):.2f} | {ratios[0]:.2f} | {ratios[-1]:.2f} |"
        )
    lines += [
        "",
        "| campaign | publisher | predicted as | thousand GPU-hours | predicted | ratio "
        "| left out | source |",
        "|---|---|---|---:|---:|---:|---:|---|",
    ]
    for one, error, held in judged:
        mark = "" if held else ", outside"
        lines.append(
            f"| {one.name} | {one.publisher} | {one.setup} | {one.published / 1e3:,.4g} "
            f"| {one.predicted / 1e3:,.4g} | {math.exp(one.log):.2f} "
            f"| {100 * math.expm1(error):+.0f} %{mark} | {one.source} |"
        )
    lines += ["", "`python scripts/make_campaigns.py` writes this page and prints the factor.", ""]
    return "\n".join(lines)


def main() -> None:
    """Write the page and print the table of the specs."""
    known = campaigns()
    factor = fitted(known)
    PAGE.write_text(page(known), encoding="utf-8")
    print("[campaign]")
    for name in ("typical", "low", "high"):
        value = f"{getattr(factor, name):.2f}"
        print(f'{name} = {{ value = {value}, unit = "1", source = "campaigns" }}')


if __name__ == "__main__":
    main()

"""Make docs/reference/peers.md: planner beside other predictors on the same published runs.

What peers predict is in `scripts/published/peers.csv`, which `python benchmarks/peers.py` writes;
what planner predicts is made now. Run it after a change of either:

    python scripts/make_peers.py
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from make_accuracy import ROOT, shipped_rows
from publishers import publisher
from spec_pages import plain, table

from planner.base.formatting import format_count
from planner.validation.accuracy import ComparedQuantity, ComparedRun
from planner.validation.training.cases import TrainingCase

PREDICTED = Path(__file__).parent / "published" / "peers.csv"
ABSENT = Path(__file__).parent / "published" / "peers_absent.csv"
PAGE = ROOT / "docs" / "reference" / "peers.md"
FEWEST = 5
_STEP = "step_time_s"
_HEAD = f"""# Other predictors

Made by `python scripts/make_peers.py` from what other tools predict of the published runs that ship
with the package. Anyone can ask the tools again:

```text
python benchmarks/peers.py --python NAME=PYTHON --folder NAME=CLONE
```

- *mean* and *median* are those of |predicted / measured - 1|, of the same runs for both.
- *not fitted* is planner's mean on those of the runs that no parameter was fitted to. A peer may
  have been fitted to any of them; most do not say.
- *better* has the smaller mean. Where it is not planner, another tool predicts these runs better.
- Groups with fewer than {FEWEST} runs count in *all* alone.
- llm-analysis takes the share of the peak that software reaches from its user. It gets the share,
  in steps of 0.05, that suits each group best. A user cannot know it before.
- The other tools use their own files of GPUs and kernels, unchanged but for limits of memory.
  AIConfigurator uses the newest kernels that it has for an engine. It gets runs spread evenly over
  all, because each takes seconds.
- A tool gets the runs whose whole layout it can say. Runs that it refuses are left out for both."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Predicted over measured of one run, by the peer and by planner."""

    group: str
    peer: float
    planner: float
    fitted: bool


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """The runs of one group that a peer and planner predict."""

    name: str
    pairs: Sequence[Pair]

    @cached_property
    def peer(self) -> tuple[float, float]:
        """Mean and median error of the peer."""
        return _errors(pair.peer for pair in self.pairs)

    @cached_property
    def planner(self) -> tuple[float, float]:
        """Mean and median error of planner."""
        return _errors(pair.planner for pair in self.pairs)

    @cached_property
    def unfitted(self) -> float | None:
        """Planner's mean error of runs that no parameter was fitted to; None: there is none."""
        found = [pair.planner for pair in self.pairs if not pair.fitted]
        return _errors(found)[0] if found else None

    @property
    def planner_is_better(self) -> bool:
        """Whether planner's mean error is the smaller one."""
        return self.planner[0] < self.peer[0]


def _errors(ratios: Iterable[float]) -> tuple[float, float]:
    errors = np.abs(np.array([*ratios]) - 1)
    return float(errors.mean()), float(np.median(errors))


def page(tables: Iterable[Sequence[ComparedRun]]) -> str:
    """The text of the page, from the rows of each shipped table."""
    rows = {row.run.text("id"): row for rows in tables for row in rows}
    parts = [_HEAD]
    for (peer, version, date), predicted in _by_peer().items():
        parts.append(f"## {peer} {version}, {date}")
        for quantity, values in predicted.items():
            parts += _section(peer, quantity, values, rows)
    absent = [(row["peer"], row["version"], row["date"], row["reason"]) for row in _read(ABSENT)]
    parts += ["## Not run", table(("tool", "version", "date", "why"), absent)]
    return "\n\n".join(parts) + "\n"


def _section(
    peer: str, quantity: str, values: Mapping[str, float], rows: Mapping[str, ComparedRun]
) -> Iterator[str]:
    pairs = [pair for name, value in values.items() if (pair := _pair(rows, name, quantity, value))]
    if not pairs:
        return
    groups: defaultdict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        groups[pair.group].append(pair)
    enough = [
        Pairs(name=name, pairs=found) for name, found in groups.items() if len(found) >= FEWEST
    ]
    ordered = sorted(enough, key=lambda one: (-len(one.pairs), one.name))
    every = Pairs(name="all", pairs=pairs)
    head = ("runs of", "runs", f"{peer}: mean", "median", "planner: mean", "median", "not fitted")
    title = quantity.removesuffix("_s").replace("_", " ").capitalize()
    yield f"### {title}: {peer}"
    yield table((*head, "better"), (_cells(peer, one) for one in (*ordered, every)))


def group_of(row: ComparedRun) -> str:
    """The publisher of a run; of training, also whether it had one node or several."""
    case = row.prediction.case
    if not isinstance(case, TrainingCase):
        return publisher(row)
    nodes = "one node" if case.num_gpus <= case.cluster.gpus_per_node else "several nodes"
    return f"{publisher(row)}, {nodes}"


def _pair(rows: Mapping[str, ComparedRun], name: str, quantity: str, value: float) -> Pair | None:
    row = rows.get(name)
    compared = None if row is None else _compared(row, quantity)
    if row is None or compared is None or (ratio := row.ratio(compared)) is None:
        return None
    # A step time is compared with whatever time or rate was measured: both errors have it alike.
    of_planner = row.prediction.values[quantity]
    return Pair(
        group=group_of(row),
        peer=ratio * value / of_planner,
        planner=ratio,
        fitted=bool(row.run.flag(compared.calibration)),
    )


def _compared(row: ComparedRun, quantity: str) -> ComparedQuantity | None:
    named = (one for one in row.kind.compared if quantity in one.names)
    return next(named, None) if quantity in row.prediction.values else None


def _cells(peer: str, found: Pairs) -> Iterator[str]:
    yield plain(found.name)
    yield format_count(len(found.pairs))
    yield from map(_percent, (*found.peer, *found.planner))
    yield "" if found.unfitted is None else _percent(found.unfitted)
    yield "planner" if found.planner_is_better else peer


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _by_peer() -> dict[tuple[str, str, str], dict[str, dict[str, float]]]:
    """Predictions by name, version and date of the peer, quantity and run."""
    found: dict[tuple[str, str, str], dict[str, dict[str, float]]] = {}
    for row in _read(PREDICTED):
        of_peer = found.setdefault((row["peer"], row["version"], row["date"]), {})
        of_peer.setdefault(row["quantity"], {})[row["id"]] = float(row["value"])
    return found


def _read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return [*csv.DictReader(file)]


if __name__ == "__main__":
    PAGE.write_text(page(shipped_rows()), encoding="utf-8")

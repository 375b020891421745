"""Record the accuracy and the predictions of a release, and make docs/reference/releases.md.

    python scripts/make_releases.py --record    # of this version: its files in scripts/published
    python scripts/make_releases.py             # the page, from the files of all releases
    python scripts/make_releases.py --predictions FILE      # of this commit, into a file
    python scripts/make_releases.py --compare OLD NEW       # two such files

The first runs last before a release, on the commit that sets its version; again, it replaces what
was recorded of the same version. `predictions/VERSION.csv.gz` has a line for each shipped run and
quantity. `releases.csv` has the errors and intervals of all publishers together and of each,
with the intervals made without its runs.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from make_accuracy import ROOT, shipped_rows
from memory_fits import endings, judged, logged_endings
from residuals import Held, held_when_left_out, residuals
from spec_pages import plain, table

from planner.base.formatting import format_count
from planner.base.version import __version__
from planner.confidence.intervals import LEVEL
from planner.errors import SpecError
from planner.question.names import PEAK_MEMORY
from planner.validation.accuracy import RL_KIND, ComparedRun

FOLDER = Path(__file__).parent / "published"
RECORD = FOLDER / "releases.csv"
PREDICTIONS = FOLDER / "predictions"
PAGE = ROOT / "docs" / "reference" / "releases.md"
CHANGELOG = ROOT / "CHANGELOG.md"
CHANGED = 0.01
"""Relative change from which on a prediction counts as changed."""
_ALL = "all"
_COLUMNS = (
    "release", "date", "quantity", "group", "name", "runs", "unfitted_runs", "median",
    "unfitted_median", "inside",
)  # fmt: skip
_HEAD = f"""# Accuracy by release

Made by `python scripts/make_releases.py` from files that each release leaves behind. A release adds
a part and never changes those of older ones. [Accuracy](../background/accuracy.md) explains the
figures of today, and has those of fits that are repeated without whole publishers. [Errors by
group](accuracy_tables.md) has them by software, GPU and model.

- *median* is that of |predicted / measured - 1| of all runs, *not fitted* that of the runs that no
  parameter was fitted to.
- *inside* is the share of runs inside {LEVEL:.0%} intervals that are made without any run of their
  publisher. Serving benchmarks are left out model by model.
- *evidence* is how near runs of the other publishers are
  ([uncertainty](../background/uncertainty.md)).
- Runs beyond ten times the prediction say something else than they seem to and are left out."""

Value = Mapping[str, str]
Predictions = dict[tuple[str, str], tuple[float, float]]


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Errors of a group of runs; ``inside`` is NaN where no interval is made by publisher."""

    group: str
    name: str
    runs: int
    unfitted_runs: int
    median: float
    unfitted_median: float
    inside: float


def released() -> dict[str, str]:
    """The date of each release, the newest first: headings of the changelog that have one."""
    text = CHANGELOG.read_text(encoding="utf-8")
    return dict(re.findall(r"^## (\S+) \(([\d-]+)\)$", text, re.MULTILINE))


def record_release() -> None:
    """Write the predictions of this version, and its lines of the record.

    Raises SpecError if the changelog has no date for it.
    """
    date = released().get(__version__)
    if date is None:
        raise SpecError(f"{CHANGELOG.name} has no heading '## {__version__} (date)'.")
    tables = shipped_rows()
    PREDICTIONS.mkdir(exist_ok=True)
    write_predictions(_file_of(__version__), tables)
    others = [row for row in _read(RECORD) if row["release"] != __version__]
    with RECORD.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(_COLUMNS)
        for quantity, summary in summaries(tables):
            writer.writerow((__version__, date, quantity, *_record_cells(summary)))
        writer.writerows([row[name] for name in _COLUMNS] for row in others)


def write_predictions(path: Path, tables: Iterable[Sequence[ComparedRun]]) -> None:
    """Write a line for each quantity that a run measured: what is predicted and was measured."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(("id", "quantity", "software", "predicted", "measured"))
    for row in (row for rows in tables for row in rows):
        for compared in row.kind.compared:
            name = row.first_measured(compared.names)
            if name is not None and row.ratio(compared) is not None:
                values = (row.ranges[name].value, row.measured[name])
                cells = (f"{value:.4g}" for value in values)
                writer.writerow((row.run.text("id"), name, row.software, *cells))
    path.write_bytes(gzip.compress(file.getvalue().encode(), mtime=0))


def summaries(tables: Iterable[Sequence[ComparedRun]]) -> Iterator[tuple[str, Summary]]:
    """The quantities and their errors: of all runs, by evidence, and by publisher.

    Steps of reinforcement learning are too few to leave publishers out.
    """
    kinds: defaultdict[int, list[ComparedRun]] = defaultdict(list)
    for rows in tables:
        kinds[id(rows[0].kind)] += rows
    confidence = None
    for rows in (rows for rows in kinds.values() if rows[0].kind is not RL_KIND):
        found = residuals(rows)
        times = sorted({one.quantity for one in found} - {PEAK_MEMORY})
        held = {name: held_when_left_out(found, name) for name in times}
        for quantity in (name for name in times if held[name]):
            yield from ((quantity, one) for one in _groups(held[quantity]))
        ended = endings(rows)
        memory = judged(ended if confidence is None else [*ended, *logged_endings()], confidence)
        confidence = memory.confidence
        for work, part in memory.coverage.items():
            if work == _ALL or not part.runs:
                continue
            errors = [one.error for one in ended if one.work == work and one.error == one.error]
            yield (
                f"peak memory, {work}",
                Summary(
                    group=_ALL,
                    name=_ALL,
                    runs=part.runs,
                    unfitted_runs=0,
                    median=_median(np.abs(np.expm1(-np.array(errors)))),
                    unfitted_median=float("nan"),
                    inside=part.inside,
                ),
            )


def _groups(held: Sequence[Held]) -> Iterator[Summary]:
    names: Mapping[str, Callable[[Held], str]] = {
        _ALL: lambda one: _ALL,
        "evidence": lambda one: one.basis,
        "publisher": lambda one: one.residual.publisher,
    }
    for group, name_of in names.items():
        members: defaultdict[str, list[Held]] = defaultdict(list)
        for one in held:
            members[name_of(one)].append(one)
        for name, found in sorted(members.items(), key=lambda item: (-len(item[1]), item[0])):
            errors = np.array([abs(np.expm1(-one.residual.value)) for one in found])
            fitted = np.array([one.residual.calibration for one in found])
            yield Summary(
                group=group,
                name=name,
                runs=len(found),
                unfitted_runs=int((~fitted).sum()),
                median=_median(errors),
                unfitted_median=_median(errors[~fitted]),
                inside=float(np.mean([one.inside for one in found])),
            )


def _median(values: Sequence[float] | np.ndarray) -> float:
    return float(np.median(values)) if len(values) else float("nan")


def _record_cells(found: Summary) -> Iterator[str]:
    yield from (found.group, found.name, str(found.runs), str(found.unfitted_runs))
    for share in (found.median, found.unfitted_median, found.inside):
        yield "" if share != share else f"{share:.3f}"


def page() -> str:
    """The text of the page, from the files of all releases, the newest first."""
    rows = _read(RECORD)
    versions = list(dict.fromkeys(row["release"] for row in rows))
    newest = sorted(versions, key=_number, reverse=True)
    parts = [_HEAD, *_changes(newest)]
    for version in newest:
        mine = [row for row in rows if row["release"] == version]
        if not mine:
            continue
        parts.append(f"## {version}, {mine[0]['date']}")
        parts.append(_table("evidence", mine, (_ALL, "evidence")))
        parts.append(f"### {version}: by publisher left out")
        parts.append(_table("publisher", mine, ("publisher",)))
    return "\n\n".join(parts) + "\n"


def _table(what: str, rows: Iterable[Value], groups: Sequence[str]) -> str:
    head = ("quantity", what, "runs", "median", "not fitted", "inside")
    lines = (
        (
            row["quantity"].replace("_", " "),
            plain(row["name"]),
            format_count(int(row["runs"])),
            *map(_percent, (row["median"], row["unfitted_median"], row["inside"])),
        )
        for row in rows
        if row["group"] in groups
    )
    return table(head, lines)


def _percent(share: str) -> str:
    return f"{100 * float(share):.1f} %" if share else ""


def _changes(newest: Sequence[str]) -> Iterator[str]:
    """What changed from each release to the next, of those whose predictions are recorded."""
    known = [version for version in newest if _file_of(version).exists()]
    known += [
        version
        for path in PREDICTIONS.glob("*.csv.gz")
        if (version := path.name.removesuffix(".csv.gz")) not in newest
    ]
    known.sort(key=_number, reverse=True)
    yield "## Predictions that changed"
    yield (
        f"Of the runs that both versions have. Changes of less than {CHANGED:.0%} do not count. "
        "*median* and *largest* are of those that changed, *better* is the share of them that is "
        "nearer to its measurement than before. Errors are medians of all."
    )
    if len(known) < 2:
        yield "One release is recorded so far; the next one is compared with it."
    for new, old in pairwise(known):
        yield f"### {old} to {new}"
        yield comparison(read_predictions(_file_of(old)), read_predictions(_file_of(new)))


def comparison(old: Predictions, new: Predictions) -> str:
    """The table of the predictions that changed, by quantity."""
    groups: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    for key in old.keys() & new.keys():
        groups[key[1]].append(key)
    head = (
        "quantity", "runs in both", "changed", "median", "largest", "better", "error before",
        "after", "new", "gone",
    )  # fmt: skip
    lines = []
    for quantity, keys in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        before = np.array([old[key] for key in keys])
        after = np.array([new[key] for key in keys])
        change = after[:, 0] / before[:, 0] - 1
        moved = np.abs(change) > CHANGED
        errors = [np.abs(values[:, 0] / values[:, 1] - 1) for values in (before, after)]
        nearer = errors[1][moved] < errors[0][moved]
        most = change[np.argmax(np.abs(change))] if len(change) else 0.0
        lines.append(
            (
                quantity.replace("_", " "),
                format_count(len(keys)),
                format_count(int(moved.sum())),
                f"{100 * _median(np.abs(change[moved])):.1f} %" if moved.any() else "",
                f"{100 * most:+.0f} %" if moved.any() else "",
                f"{100 * nearer.mean():.0f} %" if moved.any() else "",
                *(f"{100 * _median(one):.1f} %" for one in errors),
                format_count(sum(key[1] == quantity for key in new.keys() - old.keys())),
                format_count(sum(key[1] == quantity for key in old.keys() - new.keys())),
            )
        )
    return table(head, lines)


def read_predictions(path: Path) -> Predictions:
    """Predicted and measured values of a recorded file, by run and quantity."""
    text = gzip.decompress(path.read_bytes()).decode()
    return {
        (row["id"], row["quantity"]): (float(row["predicted"]), float(row["measured"]))
        for row in csv.DictReader(io.StringIO(text))
    }


def _file_of(version: str) -> Path:
    return PREDICTIONS / f"{version}.csv.gz"


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


def _read(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return [*csv.DictReader(file)]


def main(arguments: Sequence[str]) -> None:
    """Do what the arguments say; without any, write the page."""
    match arguments:
        case ["--predictions", path]:
            write_predictions(Path(path), shipped_rows())
        case ["--compare", old, new]:
            print(comparison(read_predictions(Path(old)), read_predictions(Path(new))))
        case [] | ["--record"]:
            if arguments:
                record_release()
            PAGE.write_text(page(), encoding="utf-8")
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])

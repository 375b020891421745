"""Make docs/reference/accuracy_tables.md: errors of the shipped runs, by what they have in common.

They are those of `planner validate`, also by GPU and model. The rows that the README shows of them
are written there. Run it after a change of what is predicted; tests fail while the files are not
what it makes:

    python scripts/make_accuracy.py
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from accuracy_targets import reached
from spec_pages import plain, table

import planner
from planner.base.formatting import format_count, format_significant
from planner.confidence.intervals import LEVEL
from planner.confidence.profile_rules import read_table
from planner.specs.catalogue import Catalogue
from planner.validation.accuracy import (
    ComparedQuantity,
    ComparedRun,
    Errors,
    group_errors,
    joined,
    memory_verdicts,
    predict,
)
from planner.validation.run_tables import SHIPPED, SHIPPED_INFERENCE, SHIPPED_RL, read_runs
from planner.validation.spec_library import Library
from planner.validation.validated_runs import select_compared

ROOT = Path(planner.__file__).parents[1]
FILE = ROOT / "docs" / "reference" / "accuracy_tables.md"
README = ROOT / "README.md"
ACCURACY = ROOT / "docs" / "background" / "accuracy.md"

_NAMED = re.compile(r"^\|.*\| `([\w-]+)` \|$", re.MULTILINE)
_UNITS = {
    "step_time_s": (1.0, "s a step"),
    "tokens_per_s_per_gpu": (1.0, "tokens/s/GPU"),
    "output_tokens_per_s": (1.0, "tokens/s"),
    "time_per_output_token_s": (1e3, "ms TPOT"),
}
_ENOUGH, _MANY = 10, 20
_TITLES = (
    "Training",
    "Static batches and offline throughput",
    "Serving streams of requests",
    "Reinforcement learning",
)
_HEAD = f"""# Errors by group

Made by `python scripts/make_accuracy.py` from what `planner validate` predicts for the published
runs that ship with the package. [Accuracy](../background/accuracy.md) explains them.

- *runs* have a measurement, *predicted* of them a prediction. Groups of fewer than {_ENOUGH}
  predicted runs count in *all* alone.
- *mean* and *median* are those of |predicted / measured - 1|.
- *bias* is the median of predicted / measured - 1. Above 0 the prediction has more time, memory or
  throughput than was measured.
- *within* is the share of runs inside the {LEVEL:.0%} interval.
- *score* is the mean interval score on the logarithm, less is better. It is the width of the
  interval and {2 / (1 - LEVEL):.0f} times what lies beyond it.
- *basis* is what an interval rests on: *measured*, runs of that software on that class of GPU;
  *transferred*, of one of the two; *roofline*, of neither. A prediction says its own.
- Left out are runs whose columns cannot be their layout, and speeds that their source calls noise.
- Models without a name of their own, given by their sizes alone, stand together under *gpt*.

![Predicted against measured, every quantity of the runs](../static/pictures/predicted.png)

`python scripts/make_pictures.py predicted` draws it again."""
_COLUMNS = ("runs", "predicted", "mean", "median", "bias", "within", "score")
_GROUPS: Mapping[str, Callable[[ComparedRun], str | None]] = {
    "software": lambda row: row.software,
    "GPU": lambda row: case.gpu.name if (case := row.prediction.case) else None,
    "model": lambda row: case.model.name if (case := row.prediction.case) else None,
    "mode": lambda row: row.run.text("mode") or None,
    "basis": lambda row: row.prediction.basis or None,
}


def accuracy_tables(tables: Iterable[Sequence[ComparedRun]]) -> str:
    """The text of the file, from the rows of each shipped table."""
    tables = [*tables]
    parts = [_HEAD, *_targets(tables), *_slices(tables)]
    for title, rows in zip(_TITLES, tables, strict=True):
        parts.append(f"## {title}")
        for compared in rows[0].kind.compared:
            parts += _section(title, compared, rows)
        parts += _verdicts(title, rows)
    return "\n\n".join(parts) + "\n"


def _targets(tables: Sequence[Sequence[ComparedRun]]) -> Iterator[str]:
    """What is aimed at for sets of runs, and what is reached."""
    yield "## Targets"
    yield (
        "Sets, figures and targets are rows of `scripts/published/accuracy_targets.csv`. Rows that "
        "their source marks as noise, and layouts that cannot be, are left out. *unfitted* is the "
        "figure of the runs that no parameter was fitted to."
    )
    lines = (
        (
            *(plain(one.name), one.figure, format_count(one.rows), _percent(one.reached)),
            *(_percent(one.unfitted), _percent(one.target), "yes" if one.is_met else "no"),
        )
        for one in reached(tables)
    )
    yield table(("set", "figure", "runs", "reached", "unfitted", "target", "met"), lines)


def _slices(tables: Sequence[Sequence[ComparedRun]]) -> Iterator[str]:
    """Yield the errors of hard slices of the runs, and the condition of each."""
    yield "## Slices"
    yield (
        "Slices are rows of `scripts/published/accuracy_slices.csv`. Pass a condition to "
        "`planner validate --where` for its errors by source, software and GPU."
    )
    slices = read_table("accuracy_slices.csv", Path(__file__).parent / "published")
    yield table(("slice", "--where"), ((row["slice"], f"`{row['where']}`") for row in slices))
    lines = [line for row in slices for line in _slice_lines(row["slice"], row["where"], tables)]
    yield table(("slice", "quantity", *_COLUMNS), lines)


def _slice_lines(
    name: str, where: str, tables: Sequence[Sequence[ComparedRun]]
) -> Iterator[tuple[str, ...]]:
    for title, rows in zip(_TITLES, tables, strict=True):
        selected = select_compared(rows, where)
        for compared in rows[0].kind.compared:
            measured = (row for row in selected if row.first_measured(compared.names) is not None)
            counted = [row for row in measured if row.counts(compared)]
            if len(counted) >= _ENOUGH:
                quantity = f"{title}: {compared.title.lower()}"
                yield (name, *_cells(group_errors(quantity, counted, compared)))


def accuracy_with(tables: str, text: str) -> str:
    """The text of the accuracy page with the rows of slices of the tables."""
    part = tables.partition("## Slices\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("| ")]
    errors = [row for row in rows if len(row) == len(_COLUMNS) + 2 and row[2][0].isdigit()]
    enough = [row for row in errors if int(row[2].replace(",", "")) >= _MANY]
    lines = [(row[0], _short(row[1]), row[2], *row[4:6], row[7]) for row in enough]
    head = "| slice | quantity | runs | mean | median | within |\n|---|---|--:|--:|--:|--:|\n"
    body = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return re.sub(r"^\| slice \|.*\n(?:\|.*\n)*", lambda _: head + body, text, flags=re.MULTILINE)


def _short(quantity: str) -> str:
    """Return the name of a quantity with the first word of its table, such as *serving: ...*."""
    table_name, _, name = quantity.partition(": ")
    return f"{table_name.split()[0].lower()}: {name}"


@cache
def shipped_rows() -> list[Sequence[ComparedRun]]:
    """The rows of every shipped table with their predictions."""
    library = Library(catalogue=Catalogue(None))
    tables = [read_runs(path) for path in (SHIPPED, *SHIPPED_INFERENCE, SHIPPED_RL)]
    return [joined(runs, predict(runs, library)) for runs in tables]


def readme_with(tables: str, text: str) -> str:
    """The text of the README with the rows that it shows of the tables: *section, group*, and
    of the targets: *set*, *figure*, without the runs that were fitted and with them."""
    targets = tables.partition("## Targets\n")[2].partition("\n## ")[0]
    for line in targets.splitlines():
        if line.startswith("| "):
            name, figure, _, reached, unfitted, *_ = line.strip("| ").split(" | ")
            old = re.compile(
                rf"^{re.escape(f'| {name} | {figure} | ')}[^|]*\| [^|]* \|$", re.MULTILINE
            )
            text = old.sub(f"| {name} | {figure} | {unfitted} | {reached} |", text)
    head, mark, rest = text.partition("| errors of |")
    lines = rest.splitlines(keepends=True)
    for number, line in enumerate(lines):
        name = line.strip("|\n ").split(" | ")[0]
        section, _, group = name.rpartition(", ")
        _, is_known, after = tables.partition(f"### {section}\n")
        if section and is_known:
            row = next(row for row in after.splitlines() if row.startswith(f"| {group} |"))
            runs, _, mean, median, _, within, _ = row.strip("| ").split(" | ")[1:]
            lines[number] = f"| {name} | {runs} | {mean} | {median} | {within} |\n"
    return head + mark + "".join(lines)


def with_known_runs(text: str) -> str:
    """The text with the cells of rows that end with the name of a shipped run: its first measured
    quantity, what is predicted of it with the 90 % interval, and the error."""
    found = {row.run.text("id"): row for row in _rows_of({*_NAMED.findall(text)})}

    def made(line: re.Match[str]) -> str:
        what, where, *_ = line[0].strip("| ").split(" | ")
        cells = (what, where, *_known_cells(found[line[1]]), f"`{line[1]}`")
        return f"| {' | '.join(cells)} |"

    return _NAMED.sub(made, text)


def _rows_of(names: Collection[str]) -> Iterator[ComparedRun]:
    """The shipped runs of these names with their predictions."""
    library = Library(catalogue=Catalogue(None))
    for path in (SHIPPED, *SHIPPED_INFERENCE, SHIPPED_RL):
        runs = read_runs(path)
        runs = replace(runs, rows=tuple(run for run in runs.rows if run.text("id") in names))
        yield from joined(runs, predict(runs, library))


def _known_cells(row: ComparedRun) -> tuple[str, str, str]:
    compared = next(one for one in row.kind.compared if row.first_measured(one.names))
    name = str(row.first_measured(compared.names))
    scale, unit = _UNITS[name]
    of_it = row.ranges[name]
    value, *ends = (format_significant(scale * one) for one in (of_it.value, of_it.low, of_it.high))
    error = f"{100 * (of_it.value / row.measured[name] - 1):+.0f} %"
    return (
        f"{format_significant(scale * row.measured[name])} {unit}",
        f"{value} ({' to '.join(ends)})",
        error,
    )


def _section(title: str, compared: ComparedQuantity, rows: Sequence[ComparedRun]) -> Iterator[str]:
    measured = (row for row in rows if row.first_measured(compared.names) is not None)
    known = [row for row in measured if row.counts(compared)]
    every = group_errors("all", known, compared)
    if every.predicted < _ENOUGH:
        return
    yield f"### {title}: {compared.title.lower()}"
    for name, group in _GROUPS.items():
        if found := _groups(known, compared, group):
            word = rows[0].kind.software if name == "software" else name
            yield table((word, *_COLUMNS), map(_cells, (*found, every)))


def _groups(
    rows: Sequence[ComparedRun],
    compared: ComparedQuantity,
    group: Callable[[ComparedRun], str | None],
) -> list[Errors]:
    """Errors of the groups that have enough runs, the largest first."""
    members: defaultdict[str, list[ComparedRun]] = defaultdict(list)
    for row in rows:
        if (name := group(row)) is not None:
            members[name].append(row)
    found = (group_errors(name, of_it, compared) for name, of_it in members.items())
    enough = [one for one in found if one.predicted >= _ENOUGH]
    return sorted(enough, key=lambda one: (-one.predicted, one.name))


def _verdicts(title: str, rows: Sequence[ComparedRun]) -> Iterator[str]:
    found = memory_verdicts(rows)
    if not found.ran_out:
        return
    yield f"### {title}: out of memory"
    cells = (
        ("ran out, said to fit", found.ran_out, found.predicted_fit),
        ("ran, said to run out", found.ran, found.predicted_out_of_memory),
    )
    lines = (
        (name, format_count(n), format_count(wrong), _percent(wrong / n))
        for name, n, wrong in cells
    )
    yield table(("", "runs", "wrong", "share"), lines)


def _cells(found: Errors) -> Iterator[str]:
    yield plain(found.name)
    yield format_count(found.rows)
    yield format_count(found.predicted)
    yield _percent(found.mape)
    yield _percent(found.median)
    yield _percent(found.bias, sign="+")
    yield _percent(found.within, digits=0)
    yield f"{found.score:.2f}" if math.isfinite(found.score) else ""


def _percent(share: float, digits: int = 1, sign: str = "") -> str:
    return f"{100 * share:{sign}.{digits}f} %" if math.isfinite(share) else ""


if __name__ == "__main__":
    made = accuracy_tables(shipped_rows())
    FILE.write_text(made, encoding="utf-8")
    text = readme_with(made, README.read_text(encoding="utf-8"))
    README.write_text(with_known_runs(text), encoding="utf-8")
    ACCURACY.write_text(accuracy_with(made, ACCURACY.read_text("utf-8")), encoding="utf-8")

"""Tables out of rows of results: which columns, their heads, and cells in one unit each."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from planner.base import text
from planner.optimize.result_columns import ends_of
from planner.pages.document import numbers
from planner.question.inputs import limit_column
from planner.question.terms import Term, glossary, term_of_column, terms_about
from planner.show.page import TOTAL, Bars, Block, Cell, Column, Head, Scatter, Table, cells_of
from planner.show.theme import MEMORY_ORDER, TIME_ORDER, in_order, part_label
from planner.show.views.front import settings_of
from planner.show.views.told import label, layout_of, number_of, scale_alike, told_in
from planner.workloads.base import Workload

Rows = Sequence[Mapping[str, object]]

MOST_ROWS = 1000
"""A page with more rows nobody reads, and few browsers sort."""

PLAN = "plan"
"""The column that tells a layout in a few words."""

PLACES = tuple(dict.fromkeys(["mode", *terms_about("place"), "num_gpus"]))
"""What says where a row runs."""

AXES = {"gpu": "GPU", "num_gpus": "number of GPUs"}
"""What people call columns, where it is not their name."""

MOST_BARS = 6
"""Plans whose parts stand beside each other."""

_MEMORY, _FITS = "peak_memory_gib", "fit_probability"
_LONGEST = 60
_HEADS = {"gpu": "GPU", "prefill_gpu": "prefill GPU"}

# By the name of a chart: what its columns begin and end with, their order, their sum, its caption.
_KINDS: Mapping[str, tuple[str, str, tuple[str, ...], str, str]] = {
    "time": ("time_", "_s", TIME_ORDER, "step_time_s", "Where the time of a step goes"),
    "memory": (
        "memory_",
        "_gib",
        MEMORY_ORDER,
        "peak_memory_gib",
        "Where the memory of the fullest GPU goes",
    ),
}
# Columns that begin as parts do and are none.
_OTHERS = ("memory_headroom_gib",)
_PREFIXES = ("time_to_", "time_per_")


def shown_columns(
    workload: Workload, rows: Rows, goals: Iterable[str] = (), among: Iterable[str] = PLACES
) -> list[str]:
    """What differs between rows, what they reach, and how much memory they take."""
    wording, places = workload.wording, [*among]
    table = {
        name: [row.get(name) for row in rows]
        for name in dict.fromkeys(n for row in rows for n in row)
    }
    hidden = {*wording.degrees, "layout"} - {*places}
    differing = [
        name
        for name in settings_of(workload, places, table)
        if name not in hidden and len({*table[name]}) > 1
    ]
    settings = [name for name in differing if name not in places]
    reached = [*goals, *wording.results(()), *wording.told, _MEMORY, _FITS]
    known = [name for name in dict.fromkeys(reached) if any(map(_is_known, table.get(name, ())))]
    return [*(name for name in differing if name in places), PLAN, *settings, *known]


def make_table(
    name: str,
    caption: str,
    workload: Workload,
    rows: Rows,
    columns: Iterable[str],
    marked: Sequence[str] = (),
    notes: Sequence[str] = (),
    is_small: bool = False,
    first: Sequence[Column] = (),
) -> Table:
    """Rows under these columns, no more than `MOST_ROWS`; a note tells how many there are else.

    ``first`` are columns that a view has made.
    """
    told = [*notes]
    if len(rows) > MOST_ROWS:
        told.append(
            f"The first {text.count(MOST_ROWS)} of {text.count(len(rows))} rows; the file of the "
            "result has all."
        )
        rows, marked = rows[:MOST_ROWS], marked[:MOST_ROWS]
    made = [
        *((_head(c.name, c.header or c.name, c.numeric), cells_of(c.cells)) for c in first),
        *(_column(workload, column, rows) for column in columns),
    ]
    return Table(
        name=name,
        caption=caption,
        heads=[head for head, _ in made],
        rows=[*zip(*(cells[: len(rows)] for _, cells in made), strict=True)],
        marked=marked,
        notes=told,
        is_small=is_small,
    )


def _column(workload: Workload, name: str, rows: Rows) -> tuple[Head, list[Cell]]:
    if name == PLAN:
        cells = [
            Cell(text=layout_of(workload, row) if row.get("feasible", True) else "-")
            for row in rows
        ]
        return Head(name=name, text=name, title="degrees of parallelism above 1"), cells
    values = [row.get(name) for row in rows]
    is_told = all(isinstance(value, float | int) or not _is_known(value) for value in values)
    if is_told and any(isinstance(value, float) and math.isfinite(value) for value in values):
        return _of_numbers(name, rows, values)
    is_numeric = all(_is_whole(value) or not _is_known(value) for value in values)
    cells = [_of_word(value) for value in values]
    return _head(name, _short(name), is_numeric), cells


def _of_numbers(name: str, rows: Rows, values: Sequence[object]) -> tuple[Head, list[Cell]]:
    """Cells in the unit that suits them, with the ends of their intervals."""
    if name == _FITS:
        return _head(name, "fits", True), [_chance(number_of(row, name)) for row in rows]
    low, high = ends_of(name)
    scale, unit = scale_alike(name, numbers(values))
    words = _short(name)
    head = words if not unit or unit in words.split() else f"{words} {unit}"
    cells = []
    for row in rows:
        value = number_of(row, name)
        if not math.isfinite(value):
            cells.append(Cell(text="-"))
            continue
        ends = [row.get(end) for end in (low, high)]
        known = numbers(ends)
        is_whole = len(known) == len(ends)
        between = " to ".join(told_in(name, scale, end) for end in known) if is_whole else ""
        cells.append(
            Cell(
                text=told_in(name, scale, value),
                more=between,
                number=value / scale,
                ends=(known[0] / scale, known[1] / scale) if is_whole else None,
            )
        )
    return _head(name, head, True), cells


def _chance(value: float) -> Cell:
    if math.isnan(value):
        return Cell(text="-")
    return Cell(text=text.chance(value), number=value)


def _of_word(value: object) -> Cell:
    if not _is_known(value):
        return Cell(text="-")
    words = text.value(value)
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    number = float(value) if is_whole and isinstance(value, int) else None
    return Cell(text=words if len(words) <= _LONGEST else f"{words[:_LONGEST]}...", number=number)


def _head(name: str, words: str, numeric: bool) -> Head:
    term = term_of_column(name)
    title = term.description if term is not None else name.replace("_", " ")
    return Head(name=name, text=words, title=title, numeric=numeric)


def _short(name: str) -> str:
    """The short name of a parameter, the head of another column."""
    term: Term | None = glossary().get(name)
    if term is not None and term.short:
        return term.short
    limited = term_of_column(name)
    if limited is not None and name == limit_column(limited.term):
        return f"{label(limited.term)} limit"
    return _HEADS.get(name) or label(name)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_known(value: object) -> bool:
    return value not in (None, "") and not (isinstance(value, float) and not math.isfinite(value))


def breakdowns(labels: Sequence[str], rows: Rows, prefix: str = "") -> list[Block]:
    """Charts of the time and the memory of rows by part, and the same as tables.

    ``prefix`` tells their names from those of other breakdowns of a page.
    """
    seen: Counter[str] = Counter()
    found, bars = list[Block](), list[str]()
    for words in labels:  # no two bars become one
        seen[words] += 1
        bars.append(words if seen[words] == 1 else f"{words} ({seen[words]})")
    for kind, (begin, end, order, total, caption) in _KINDS.items():
        parts = _parts(rows, begin, end, order)
        if not parts:
            continue
        sums = [_number(number_of(row, total)) for row in rows]
        scale, unit = scale_alike(total, sums)
        scaled = {n: [one / scale for one in values] for n, values in parts.items()}
        heads = [Head(name="part", text=f"part, {unit}")]
        heads += [Head(name=f"plan{n}", text=words, numeric=True) for n, words in enumerate(bars)]
        lines = {**{part_label(part): values for part, values in parts.items()}, label(total): sums}
        table = Table(
            name=f"{prefix}{kind}_parts",
            caption=f"{caption}, in numbers",
            heads=heads,
            rows=[
                [Cell(text=n), *(Cell(text=told_in(total, scale, v), number=v / scale) for v in vs)]
                for n, vs in lines.items()
            ],
            marked=[*[""] * len(parts), TOTAL],
            is_small=True,
            is_folded=True,
        )
        name = f"{prefix}{kind}_bars"
        found += [Bars(name=name, caption=caption, unit=unit, labels=bars, parts=scaled), table]
    return found


def _parts(rows: Rows, begin: str, end: str, order: tuple[str, ...]) -> dict[str, list[float]]:
    """The values of every part that some row has, by its name."""
    ends = (f"_low{end}", f"_high{end}", *_OTHERS)
    columns = {
        column.removeprefix(begin).removesuffix(end): column
        for row in rows
        for column in row
        if column.startswith(begin)
        and column.endswith(end)
        and not column.endswith(ends)
        and not column.startswith(_PREFIXES)
    }
    found = {
        part: [_number(number_of(row, columns[part])) for row in rows]
        for part in in_order(columns, order)
    }
    return {part: values for part, values in found.items() if any(values)}


def _number(value: float) -> float:
    """What is unknown takes nothing."""
    return value if math.isfinite(value) else 0.0


def front_chart(table: str, columns: Sequence[str], goals: Sequence[str]) -> list[Scatter]:
    """Two columns of a table against each other: at first the goals, else cost or memory."""
    others = ("cost_usd", "cost_per_million_tokens_usd", "peak_memory_gib")
    axes = [name for name in dict.fromkeys([*goals, *others]) if name in columns]
    if len(axes) < 2:
        return []
    by = next((name for name in PLACES if name in columns and name != "num_gpus"), "")
    shape = next((name for name in terms_about("terms") if name in columns and name != by), "")
    return [
        Scatter(
            name=f"{table}_chart",
            caption="Each point is a row of the table below, bars are 90 % intervals",
            table=table,
            x=axes[1],
            y=axes[0],
            by=by,
            shape=shape,
        )
    ]

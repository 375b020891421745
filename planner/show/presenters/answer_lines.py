"""Lines that the answers of several commands have in common."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from planner.base import formatting
from planner.base.csv_cells import Row
from planner.decide.assumptions import SensitiveAssumption
from planner.show.output_blocks import BEST, Block, Lines, make_lines
from planner.show.presenters.format_results import number_of
from planner.show.presenters.uncertainty import short_assumption_texts
from planner.workloads.workload import ResultWording

MOST_LINES, USUAL_COLUMNS = 24, 80
"""Lines of a first answer on a terminal of this many columns."""

_FILE = "a.json"
_MOST_CHANGES = 2


def section_line(title: str, text: str, mark: str = BEST) -> Lines:
    """Return the first line of a part of an answer: its title in capitals and its subject."""
    return make_lines(f"{title}  {text}", mark=mark, indent="  ", most=3)


def price_text(row: Row) -> str:
    """Return the price of a GPU-hour with its date: ``2.74 USD/GPU-h (2026-11-09)``.

    Returns "" if the price is unknown.
    """
    price = number_of(row, "price_per_gpu_hour_usd")
    if not math.isfinite(price):
        return ""
    date = f" ({row['price_date']})" if row.get("price_date") else ""
    return f"{price:.2f} USD/GPU-h{date}"


def assumed_count_line(
    defaults: Mapping[str, str], hidden: Iterable[str], more: Sequence[str] = ()
) -> str:
    """Return how many inputs were assumed, and what ``more`` the full form has; "" if nothing.

    The ``hidden`` inputs do not count.
    """
    number = len({*defaults} - {*hidden})
    texts = [f"Assumed: {formatting.format_counted(number, 'thing')}"] if number else []
    return f"{'; '.join([*texts, *more])} (--full)." if texts or more else ""


def change_lines(wording: ResultWording, facts: Sequence[SensitiveAssumption]) -> list[str]:
    """Return the assumptions that change an answer, at most two, a line each."""
    return short_assumption_texts(wording, facts[:_MOST_CHANGES])


def result_file(command: str) -> tuple[str, bool]:
    """Return the JSON file that a command writes, and whether it is already among its options.

    >>> result_file("planner search --json b.json"), result_file("planner search")
    (('b.json', True), ('a.json', False))
    """
    for option, value in pairwise(shlex.split(command)):
        if option == "--json" and value != "-":
            return value, True
    return _FILE, False


def next_line(command: str, target: str = "") -> str:
    """Return what to ask next of the answer of a command line.

    ``target`` is the launch target that starts the plan; "" if there is none.
    """
    name, is_written = result_file(command)
    start = "" if is_written else f"--json {name}; then "
    launch = f" | launch {target}" if target else ""
    return f"Next: {start}planner explain{launch} --from {shlex.quote(name)}"


def launch_target(workload: str, software: object) -> str:
    """Return the first launch target that starts plans of a framework or engine; "" if none."""
    from planner.launch import READ_ONLY_TOOLS, TARGETS
    from planner.launch.option_table import tool_row

    for name in TARGETS:
        row = tool_row(name)
        has_workload = workload in row["workloads"].split("|")
        if name in READ_ONLY_TOOLS:  # only its whole steps are written
            is_match = not has_workload and str(software).lower().partition(" ")[0] == name
        else:
            is_match = has_workload and software in row["profiles"].split("|")
        if is_match:
            return name
    return ""


def count_lines(blocks: Iterable[Block], width: int = USUAL_COLUMNS) -> int:
    """Return the lines that blocks take on a terminal of a width in characters."""
    from planner.show.terminal import terminal_text

    return len(terminal_text(blocks, width).splitlines())

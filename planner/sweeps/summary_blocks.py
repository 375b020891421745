"""Blocks of the results of a sweep: sentences, the matrix of places, a summary of one page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from planner.base.csv_cells import Row, Value, number_or_nan
from planner.base.enums import Contract
from planner.base.formatting import format_count, format_parameter
from planner.optimize.result_columns import RUNS
from planner.show.output_blocks import (
    BAD,
    BEST,
    GAP,
    TIE,
    TOTAL,
    Block,
    Cell,
    Column,
    ColumnHead,
    Table,
    Title,
    fit_table,
    make_lines,
    text_table,
)
from planner.show.presenters.format_results import (
    format_in_common_unit,
    format_result,
    label,
    plan_of,
    share,
)
from planner.show.presenters.prices import (
    basis_line,
    commitment_lines,
    prices_lines,
    within_sellers_line,
)
from planner.show.presenters.uncertainty import evidence
from planner.show.theme import shades
from planner.sweeps.columns import (
    COST,
    MEASURES,
    PLACES,
    TIME,
    VALUE,
    better,
    column_of_measure,
    measured,
    measured_ends,
    workloads_with_column,
)
from planner.sweeps.plan import SweepPlan
from planner.sweeps.summary import (
    CHOSEN_BY,
    IMPOSSIBLE,
    LIMIT,
    MEMORY,
    RECOMMENDED,
    UNKNOWN,
    Crossover,
    Place,
    Spot,
    Summary,
    WorkloadGroup,
    reason_mark,
)
from planner.sweeps.sweep_folder import Sweep
from planner.workloads.registry import workload_of

MARKS: Mapping[str, str] = {
    MEMORY: "out of memory",
    LIMIT: "misses a limit",
    UNKNOWN: "unknown",
    IMPOSSIBLE: "impossible",
}
"""Meaning of the marks of cells without a plan."""
# Mostly the same for all scenarios.
_SHOWN_ONCE = ("reliability", "price")
TITLES = {
    RECOMMENDED: "recommended", COST: "cheapest", TIME: "fastest", VALUE: "best value",
}  # fmt: skip
_LINES = 3
_ADVANTAGES = {COST: "cheaper", TIME: "faster"}
ALL = 10**6
"""No limit of lines or rows."""
BRACKETS = "best value: lowest cost x time. In brackets: 90 % interval, at the price of the row."
RULES = {
    COST: "Lowest at 90 %, or tied with more runs.",
    TIME: "Shortest at 90 %, or tied with more runs.",
}
"""How the recommended scenario is chosen, by the measure that decides."""
_SELLERS = (
    "Contracts have different sellers, so a longer one may cost more than an on-demand price: "
    "--provider compares contracts of one seller."
)


def matrix_blocks(
    group: WorkloadGroup, max_rows: int, name: str = "", *, has_marks: bool = False
) -> Iterator[Block]:
    """Yield the table of the measure by place (GPU, contract) and number of GPUs.

    With ``has_marks`` the title explains the marks of its cells.
    """
    metric, sign = group.metric, better(group.metric)
    if not group.has_measure(metric):
        yield make_lines(unknown_line(group), indent="")
        return
    best = dict.fromkeys(group.places, float("inf"))
    for (place, _), here in group.spots.items():
        if metric in here.best_by_measure:
            best[place] = min(best[place], sign * here.best_by_measure[metric].value)
    ranked = sorted(best, key=lambda place: best[place])
    chosen = {*ranked[:max_rows]}
    places = [place for place in group.places if place in chosen]
    column = column_of(metric, group)
    cells, unit = cells_of(group, metric, column, places)
    counts = ["best" if count is None else format_parameter(count) for count in group.counts]
    marks = f" ({marks_lines([group])[0]})" if has_marks else ""
    yield Title(text=matrix_title(group, column, unit) + marks)
    yield Table(
        name=name,
        heads=[
            ColumnHead(name="place", text=" ", title=group.by[0]),
            *(
                ColumnHead(name=n, text=n, numeric=True, rank=rank)
                for rank, n in enumerate(counts, 1)
            ),
        ],
        rows=[
            [Cell(text=" ".join(place)), *(cells[place, count] for count in group.counts)]
            for place in places
        ],
        is_small=True,
        is_whole=True,
        elsewhere="--csv has them",
        notes=[f"{more:,} more rows: --full"] if (more := len(group.places) - len(places)) else (),
    )


def matrix_title(group: WorkloadGroup, column: str, unit: str) -> str:
    """Return the title of a matrix: its measure, unit and axes."""
    title = "cost x time" if group.metric == VALUE else label(column)
    place, other = group.by
    axes = place if group.counts == [None] else f"{place} and {other}" if place else other
    return f"{title[:1].upper()}{title[1:]}{f', {unit},' if unit else ''} by {axes}"


def column_of(metric: str, group: WorkloadGroup) -> str:
    """The column of a measure in a group; the measure itself if there is none."""
    rows = group.best.values() if metric in MEASURES else ()
    return next((column for row in rows if (column := column_of_measure(metric, row))), metric)


def unknown_line(group: WorkloadGroup) -> str:
    """Return the line for a group in which no scenario has the shown measure."""
    workloads = workloads_with_column(group.shown)
    reason = (
        f": it is for workload {' or '.join(workloads)}"
        if workloads and group.workload not in workloads
        else ""
    )
    return f"No {'cost x time' if group.shown == VALUE else label(group.shown)} is known{reason}."


def cells_of(
    group: WorkloadGroup, metric: str, column: str, places: Sequence[Place]
) -> tuple[dict[Spot, Cell], str]:
    """Return the cell of each place and number of GPUs in a matrix, and the unit of the cells."""
    spots = [(place, count) for place in places for count in group.counts]
    measured_spots = [
        s for s in spots if s in group.spots and metric in group.spots[s].best_by_measure
    ]
    numerals, unit = format_in_common_unit(
        column, [group.spots[spot].best_by_measure[metric].value for spot in measured_spots]
    )
    winners = {count: group.best_spot(metric, count) for count in group.counts}
    ties = {
        other
        for count, winner in winners.items()
        if winner is not None and metric in CHOSEN_BY
        for other in group.ties(metric, winner)
        if other[1] == count
    }
    cells = dict.fromkeys(spots, Cell(text="-"))
    cell_shades = shades(
        [group.spots[s].best_by_measure[metric].value for s in measured_spots], better(metric)
    )
    for spot, numeral, shade in zip(measured_spots, numerals, cell_shades, strict=True):
        is_best = spot == winners[spot[1]]
        sign, mark = ("*", BEST) if is_best else ("~", TIE) if spot in ties else ("", "")
        value = group.spots[spot].best_by_measure[metric].value
        cells[spot] = Cell(text=sign + numeral, number=value, mark=mark, shade=shade)
    for spot in spots:
        here = group.spots.get(spot)
        if here is not None and not here.feasible:
            cells[spot] = Cell(text=reason_mark(here.reason), mark=BAD)
    return cells, unit


def marks_lines(groups: Sequence[WorkloadGroup]) -> list[str]:
    """Return the legend of the marks that the matrices of these groups use."""
    used = {reason_mark(h.reason) for g in groups for h in g.spots.values() if not h.feasible}
    marks = ["* best of its column"]
    if any(group.metric in CHOSEN_BY for group in groups):
        marks.append("~ tied with it")
    marks += [f"{mark} {meaning}" for mark, meaning in MARKS.items() if mark in used]
    return ["; ".join(marks)]


def group_title(group: WorkloadGroup) -> str:
    """Return the title of a group: model, work and answers, and scenarios without a plan."""
    answer_texts = [
        f"{name.replace('_', ' ')} {format_parameter(value)}"
        for name, value in group.shared_answers.items()
    ]
    missing = group.scenarios - group.feasible
    without = f" ({format_count(missing)} of {format_count(group.scenarios)} without a plan)"
    parts = [part for part in (group.model, group.work, *answer_texts) if part]
    return f"{', '.join(parts)}{without * (missing > 0)}"


def format_plan(row: Row) -> str:
    """The software and the layout of a scenario's plan."""
    return plan_of(workload_of(str(row["workload"])), row)


def format_placement(row: Row) -> str:
    """The GPU and the contract of a scenario."""
    names = [name for name in PLACES if name not in _SHOWN_ONCE]
    return ", ".join(str(row[name]) for name in names if row.get(name) is not None)


def format_measure(measure: str, row: Row, has_ends: bool = True) -> str:
    """Format a measure of a scenario with its unit and 90 % interval; "-": not available."""
    column = column_of_measure(measure, row)
    if not column:
        return "-"
    ends = measured_ends(column, row) if has_ends else None
    unit = f" {label(column)}" if column.endswith("_tokens_usd") else ""
    return format_result(column, row[column], ends) + unit


def winner_lines(group: WorkloadGroup) -> list[str]:
    """Return lines with the cheapest and the fastest GPU for each number of GPUs."""
    lines = []
    counts = [count for count in group.counts if count is not None]
    for measure in (COST, TIME) if len(counts) > 1 else ():
        runs: list[tuple[Place, list[Value]]] = []
        for count in counts:
            spot = group.best_spot(measure, count)
            if spot is None:
                continue
            if runs and runs[-1][0] == spot[0]:
                runs[-1][1].append(count)
            else:
                runs.append((spot[0], [count]))
        ranges = [
            f"{' '.join(place)} with {_format_range(counts_of_place)}"
            for place, counts_of_place in runs
        ]
        if ranges:
            lines.append(f"{TITLES[measure].capitalize()} by number of GPUs: {', '.join(ranges)}")
    return lines


def crossover_line(crossover: Crossover) -> str:
    """Return a line with the number of GPUs from which one GPU type beats another."""
    terms = f" ({' '.join(crossover.first[1:])})" if len(crossover.first) > 1 else ""
    advantage = _ADVANTAGES.get(crossover.measure, "better")
    details = (
        f"{share(crossover.behind)} behind with {format_count(crossover.before)}",
        f"{share(crossover.ahead)} ahead{', tied' * crossover.is_tie}",
    )
    return (
        f"{crossover.second[0]} is {advantage} than {crossover.first[0]}{terms} from "
        f"{format_count(crossover.num_gpus)} GPUs on ({'; '.join(details)})"
    )


def _format_range(counts: Sequence[Value]) -> str:
    ends = [format_count(number_or_nan(count)) for count in (counts[0], counts[-1])]
    return ends[0] if len(counts) == 1 else " to ".join(ends)


def no_plan_lines(group: WorkloadGroup) -> list[str]:
    """Return a line per reason with the places (GPU, contract) that have no plan."""
    lines = []
    for reason, places in group.places_without_plan().items():
        number = f"{len(places)} without a plan" if len(places) > 1 else "No plan"
        lines.append(f"{number} at any number of GPUs ({reason}): {format_places(places)}")
    return lines


def format_places(places: Iterable[Place]) -> str:
    """Places as text, separated by commas."""
    return ", ".join(" ".join(place) for place in places)


def tie_lines(group: WorkloadGroup, measure: str) -> list[str]:
    """Return a line with the scenarios tied with the best, within the error of predictions."""
    best = group.best_spot(measure)
    if best is None:
        return []
    counts_by_place: dict[Place, list[float]] = {}
    spots = group.ties(measure)
    for place, count in sorted(spots, key=lambda s: group.spots[s].best_by_measure[measure].value):
        counts_by_place.setdefault(place, []).append(number_or_nan(count or 0))
    place_texts, num_counts = [], len(group.counts)
    for place, counts in counts_by_place.items():
        numbers = ", ".join(format_count(count) for count in sorted(counts) if count)
        if len(counts) > 1 and len(counts) == num_counts:
            numbers = "any number"
        place_texts.append(f"{' '.join(place)}{f' ({numbers})' if numbers else ''}")
    name = TITLES[measure]
    if not place_texts:
        return [f"No other place or number of GPUs is tied with the {name}."]
    return [f"{len(spots)} tied with the {name}: {'; '.join(place_texts)}"]


def assumed_lines(group: WorkloadGroup) -> list[str]:
    """Return a line with the numbers behind the best plans that are assumed without a source."""
    texts = {
        f"{row['gpu']}: {row['assumed']}": None
        for row in group.best.values()
        if row.get("assumed") is not None
    }
    return [f"Assumed, without a source: {' / '.join(texts)}"] if texts else []


def recommended_lines(group: WorkloadGroup) -> list[str]:
    """Return what to run, and the rule and the expected loss of the recommendation."""
    row = group.recommended
    if row is None:
        return []
    measure = group.main_measure
    lost = ""
    if math.isfinite(group.regret):
        lost = f"On average the best is {share(group.regret)} {_ADVANTAGES[measure]}."
    return [
        f"RECOMMENDED  {format_gpus_of(row)}, {format_plan(row)}",
        " ".join(filter(None, [RULES[measure], lost])),
    ]


def tied_line(group: WorkloadGroup) -> Iterator[str]:
    """Yield why the scenario with the lowest prediction is not the recommended one."""
    measure, row = group.main_measure, group.recommended
    lowest = group.best.get(measure)
    if row is None or lowest is None or lowest["scenario"] == row["scenario"]:
        return
    text = f"Could be {_ADVANTAGES[measure]}: {format_gpus_of(lowest)}"
    if lowest.get("price_doubts") and not row.get("price_doubts"):
        yield f"{text}; its price is in doubt"
    elif lowest.get(RUNS) == 0:
        yield f"{text}; no published run confirms it"
    elif group.is_tied(measure, row, lowest):
        yield f"{text}; within the error of predictions"
    else:
        yield f"{text}; not at 90 %"


def format_gpus_of(row: Row) -> str:
    """Return the number of GPUs, the GPU, and a contract that is not the usual one."""
    place = format_placement(row).replace(f", {Contract.ON_DEMAND}", "").replace(",", "")
    return f"{format_count(number_or_nan(row['num_gpus']))} x {place}"


def full_blocks(sweep: Sweep, summary: Summary, front: Iterable[Row]) -> Iterator[Block]:
    """Yield every work of a sweep: best plans, money, matrix, ties, crossovers and front."""
    plan = sweep.plan
    yield make_lines(plan.name, mark=TOTAL, indent="")
    if plan.description:
        yield make_lines(plan.description, indent="")
    yield make_lines(*counts_lines(sweep, summary))
    groups = summary.groups
    fronts = by_group(front, groups)
    for group in groups:
        yield Title(text=group_title(group))
        yield from group_blocks(group, fronts.get((group.work, group.model), ()))
    yield GAP
    if summary.feasible:
        yield make_lines(*price_difference_lines(plan, groups), most=ALL)
        yield make_lines(BRACKETS, *marks_lines(groups))
    folder = sweep.folder
    yield make_lines(f"More: planner sweep show -h; all columns: {folder}/scenarios.csv")


def counts_lines(sweep: Sweep, summary: Summary) -> list[str]:
    """Return lines with the number of scenarios, varied questions and any left to run."""
    plan = sweep.plan
    total, num_scenarios = plan.num_scenarios, summary.scenarios
    line = f"{format_count(num_scenarios)} scenario{'s' * (num_scenarios != 1)}"
    if num_scenarios < sweep.done:
        line += f" of {format_count(sweep.done)}"
    line += f", {format_count(summary.feasible)} with a plan"
    if plan.varied:
        line += f"; varied: {', '.join(name.replace('_', ' ') for name in plan.varied)}"
    if sweep.done == total:
        return [line]
    done = f"{format_count(sweep.done)} of {format_count(total)} scenarios are done"
    return [line, f"Not finished: {done}; run the command that started it to continue."]


def group_blocks(group: WorkloadGroup, front: Sequence[Row], *, name: str = "") -> Iterator[Block]:
    """Yield the best plans, money, matrix (called ``name``), ties, crossovers and front of a group.

    Or why it has no plan.
    """
    if not group.best:
        yield make_lines(f"No plan at all. {'; '.join(no_plan_lines(group))}", most=ALL)
        return
    rows = [(Cell(text=t, mark=BEST), format_best_plan(row)) for t, row in headlines(group)]
    yield text_table(("", " "), rows, text_columns=(0, 1))
    yield make_lines(*proven_lines(group), most=_LINES)
    yield make_lines(*money_lines(group), most=ALL)
    yield from matrix_blocks(group, ALL, name)
    lines = [*winner_lines(group)]
    for measure in (COST, TIME):
        lines += map(crossover_line, group.crossovers(measure))
    lines += no_plan_lines(group)
    lines += [*tie_lines(group, COST), *tie_lines(group, TIME), *assumed_lines(group)]
    if group.unpriced:
        lines.append(f"No price, so no cost: {format_places(sorted(group.unpriced))}")
    for line in lines:
        yield make_lines(line, most=ALL)
    if len(front) > 1:
        yield from _front_blocks(group, front)


def proven_lines(group: WorkloadGroup) -> Iterator[str]:
    """Yield the rule and expected loss of the recommended plan, and the best proven plans."""
    yield from recommended_lines(group)[1:]
    yield from tied_line(group)
    for measure, row in group.best.items():
        if row.get(RUNS) != 0:
            continue
        missing = (
            f"The {TITLES[measure]} is not proven: no published run of its software on its GPU"
        )
        proven = group.proven.get(measure)
        if proven is None:
            yield f"{missing}, nor of any other plan here."
        else:
            proven_text = " ".join(format_best_plan(proven).split())
            yield f"{missing}. {TITLES[measure].capitalize()} proven: {proven_text}"


def format_best_plan(row: Row) -> str:
    """Format GPUs, cost and time of a scenario, and its plan on a second line."""
    reached = [
        format_measure(measure, row) for measure in (COST, TIME) if column_of_measure(measure, row)
    ]
    evidence_text = f", evidence: {evidence(str(row['basis']))}" if row.get("basis") else ""
    hardware = f"{format_count(number_or_nan(row['num_gpus']))} x {format_placement(row)}"
    return f"{hardware}: {', '.join(reached)}{evidence_text}\n{format_plan(row)}"


def headlines(group: WorkloadGroup) -> list[tuple[str, Row]]:
    """Return the best scenarios of a group with their titles, such as cheapest."""
    return [
        (f"{TITLES[name]} at a solid price" if is_solid else TITLES[name], row)
        for name, is_solid, row in group.headlines
    ]


def money_lines(group: WorkloadGroup) -> list[str]:
    """Return lines on the prices and contract terms of the best scenarios."""
    lines = prices_lines([row for _, _, row in group.headlines])
    best = [row for measure, _, row in group.headlines if measure != TIME]
    signed = {str(row["scenario"]): row for row in best}
    for row in signed.values():
        place = f"{format_count(number_or_nan(row['num_gpus']))} x {format_placement(row)}"
        lines += [f"{place}: {line}" for line in commitment_lines(row)]
    if group.lowest_price_with_work is None:
        return lines
    cost, row = group.lowest_price_with_work
    if number_or_nan(row.get("signed_gpu_hours")) > 0 and math.isnan(
        number_or_nan(row.get("charged_utilization"))
    ):
        place = f"{format_count(number_or_nan(row['num_gpus']))} x {format_placement(row)}"
        lines.append(
            "Contracts are charged for their full term. If other work uses the rest "
            "(--utilization), "
            f"the cheapest at a solid price is {place}: {format_result('cost_usd', cost)}"
        )
    return lines


def price_difference_lines(plan: SweepPlan, groups: Sequence[WorkloadGroup]) -> list[str]:
    """Return lines on prices that cannot be compared, such as purchase and rent."""
    prices = [row for group in groups for row in group.prices.values()]
    lines = [basis_line(prices)]
    if "contract" in plan.varied and not all("provider" in work.axes for work in plan.works):
        lines.append(within_sellers_line(prices) or _SELLERS)
    return [*filter(None, lines)]


def _front_blocks(group: WorkloadGroup, front: Sequence[Row]) -> Iterator[Block]:
    """Yield a table of the Pareto front over scenarios, from cheapest to most expensive."""
    metric = group.metric if group.metric in MEASURES else COST
    rows = sorted(front, key=lambda row: measured(metric, row))
    weighed = [
        name for name in workload_of(group.workload).comparison_columns if name != "num_gpus"
    ]
    measures = [name for name in weighed if any(row.get(name) is not None for row in rows)]
    goals = ", ".join(label(name) for name in [*measures, "num_gpus"])
    yield Title(text=f"Front across scenarios by {goals}: {len(rows)}")
    shown = rows  # without columns that are equal for all
    varied = [n for n in PLACES if n == "gpu" or len({row.get(n) for row in shown}) > 1]
    places = [", ".join(str(r[n]) for n in varied if r.get(n) is not None) for r in shown]
    columns = [
        Column("GPUs", [format_count(number_or_nan(row["num_gpus"])) for row in shown]),
        Column("place", places, " ", numeric=False),
    ]
    for name in measures:
        values = [number_or_nan(row.get(name) or None) for row in shown]
        texts, unit = format_in_common_unit(name, values)
        header = f"{label(name)} {unit}".strip()
        header = header.replace("calendar time", "time").replace("request latency", "latency")
        columns.append(Column(label(name), texts, header))
    columns.append(Column("plan", [*map(format_plan, shown)], numeric=False))
    yield fit_table(columns)


def by_group(
    front: Iterable[Row], groups: Sequence[WorkloadGroup]
) -> dict[tuple[str, str], list[Row]]:
    """Return the front rows of each work and model, if only one group has both."""
    rows_by_group: dict[tuple[str, str], list[Row]] = {}
    kinds = [(group.work, group.model) for group in groups]
    for row in front:
        key = (str(row["work"]), str(row.get("model")))
        if kinds.count(key) == 1:
            rows_by_group.setdefault(key, []).append(row)
    return rows_by_group

"""Tables of services on shared GPUs, of pools by length, and of capacity within a budget."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from planner.base.csv_cells import Row, Value, number_or_nan
from planner.base.formatting import (
    format_count,
    format_counted,
    format_kw,
    format_large,
    format_percent,
    format_significant,
    format_usd,
)
from planner.base.units import HOUR, KILOWATT, YEAR
from planner.decide.sizing.length_pools import ALL_PROMPTS, LengthPools
from planner.decide.sizing.purchase import (
    UNCHANGED,
    GpuNeeds,
    PriceChange,
    PurchaseOption,
    options_of_needs,
    read_price_change,
)
from planner.decide.sizing.shared_services import SharedFleet
from planner.decide.sizing.size import GPUS_BY_CONFIDENCE, Budget, BudgetResult, Size
from planner.decide.sizing.size_all import Sizes
from planner.show.output_blocks import (  # fmt: skip
    GAP,
    TOTAL,
    Block,
    Column,
    Table,
    Title,
    fit_table,
    make_lines,
)
from planner.show.presenters.format_results import (
    layout_of,
    number_cell,
    number_cells,
    number_of,
    workload_of_row,
)
from planner.show.presenters.json_files import question_manifest
from planner.show.presenters.purchase import recommendation_lines
from planner.show.presenters.recommendation import MOST_LINES, count_lines
from planner.show.presenters.row_tables import RowFiles, blocks
from planner.show.presenters.size_screen import AT_90, PREDICTED, gpu_count_columns
from planner.show.reports import SizeReport, written_report
from planner.workloads.registry import workload_of

PLACED, POOLS = "Where each service runs", "GPUs that they share"
CUTS = "Where prompts are cut"
_PROMPTS_UP_TO, _DAY = "prompts_up_to", "cost_per_day_usd"
_MIN_DIFFERENCE = 0.005
_PEAK, _STANDALONE_COLUMNS = "peak_request_rate", "alone_per_day_usd"
Rows = Sequence[Row]
_MOST_TYPES = 5
# Rows of all tables and sentences of the first screen, at most.
_MOST_ROWS, _MOST_SENTENCES = 8, 3
_RANKS = {
    "service": 0, "gpu": 0, PREDICTED: 1, AT_90: 1, "sized": 1, "a_day": 1, "model": 2, "plan": 3,
}  # fmt: skip


def services_blocks(fleet: SharedFleet, *, is_full: bool = False) -> Iterator[Block]:
    """The answer, the placement of each service, and the GPUs of each type."""
    report = written_report(lambda files: add_services(files, fleet, ()), SizeReport)
    return placement_blocks(report, is_full=is_full)


def length_pools_blocks(pools: LengthPools, *, is_full: bool = False) -> Iterator[Block]:
    """Yield whether pools by prompt length cost less than one pool, and the tried cuts."""
    report = written_report(lambda files: add_length_pools(files, pools, ()), SizeReport)
    return placement_blocks(report, is_full=is_full)


def placement_blocks(report: SizeReport, *, is_full: bool = False) -> Iterator[Block]:
    """Yield the answer on services, where each runs, and the shared GPUs or the tried cuts.

    Without ``is_full`` one screen: the first rows of each table and short sentences.
    """
    title, *others = report.answer
    options = [PurchaseOption.of_row(row) for row in report.options]
    change = read_price_change(report.price_change) if report.price_change else UNCHANGED
    recommendation = recommendation_lines(options, change, report.budget_per_year_usd)
    if is_full:
        yield make_lines(title, mark=TOTAL, indent="")
        yield GAP
        yield make_lines(*recommendation, *others)
        yield from placement_tables(report)
        return
    rows, sentences, has_pools = _MOST_ROWS, _MOST_SENTENCES - bool(recommendation), True
    while True:
        screen = [
            make_lines(title, mark=TOTAL, most=2),
            make_lines(*recommendation),
            make_lines(*others[:sentences], most=2),
            *_first_rows(placement_tables(report, has_pools=has_pools), rows),
        ]
        hidden = len(others) > sentences or not (has_pools or report.cuts)
        more = "--full shows all lines and rows, " * hidden
        screen.append(make_lines(f"Next: {more}--csv writes the rows"))
        if count_lines(screen) <= MOST_LINES or rows == 1:
            yield from screen
            return
        if has_pools:
            has_pools = False
        elif sentences > 1:
            sentences -= 1
        else:
            rows -= 1


def _first_rows(tables: Iterable[Block], number: int) -> Iterator[Block]:
    """Yield tables with so many rows together, at least one each, and how many more there are."""
    for block in tables:
        if not isinstance(block, Table):
            yield block
            continue
        rows = block.rows[: max(number, 1)]
        number -= len(rows)
        yield replace(block, rows=rows)
        if more := len(block.rows) - len(rows):
            yield make_lines(f"{more} more rows: --full")


def placement_tables(report: SizeReport, *, has_pools: bool = True) -> Iterator[Block]:
    """Yield where each service runs, and the tried cuts by length or the shared GPUs.

    ``has_pools``: the shared GPUs are shown.
    """
    yield Title(text=PLACED)
    table = fit_table(placed_columns(report.rows), lambda name: _RANKS.get(name, 2))
    yield replace(table, name="services")
    if len(report.cuts) > 1:
        yield Title(text=CUTS)
        yield replace(fit_table(cut_columns(report.cuts), lambda _: 0), name="cuts")
    elif has_pools and not report.cuts:
        yield Title(text=POOLS)
        yield replace(fit_table(pool_columns(report.pools), lambda _: 0), name="pools")


def answer_lines(fleet: SharedFleet) -> list[str]:
    """Return sentences on the GPUs and the cost of all services that share them."""
    pools = ", ".join(f"{format_count(pool.peak_gpus)} {pool.gpu}" for pool in fleet.pools)
    num_jobs = sum(placement.hours_per_day is not None for placement in fleet.placements)
    lines = [f"{counted_services(len(fleet.placements) - num_jobs, num_jobs)} on {pools}"]
    lines += _cost_line(fleet)
    for pool in fleet.pools:
        if pool.of_peaks > pool.peak_gpus:
            lines.append(
                f"{pool.gpu}: the peaks of its services add up to {format_count(pool.of_peaks)} "
                f"GPUs, {format_count(pool.peak_gpus)} are needed at once."
            )
    others = sorted(fleet.of_one_type.items(), key=lambda placement: placement[1])
    if len(others) > 1:
        costs = ", ".join(f"{gpu} {format_count(cost)} USD" for gpu, cost in others[:_MOST_TYPES])
        lines.append(f"All on one type, whatever its stock: {costs} a day.")
    lines += _too_much_power(fleet)
    for pool in fleet.pools:
        if pool.held and pool.terms.base_contract != pool.terms.hourly_contract:
            lines.append(
                f"{pool.gpu}: {format_count(pool.held)} held all day {pool.terms.base_contract} at "
                f"{format_usd(pool.terms.base * HOUR)} an hour, beyond them "
                f"{pool.terms.hourly_contract} at {format_usd(pool.terms.hourly * HOUR)}."
            )
    for placement in fleet.placements:
        finite_costs = {
            gpu: cost for gpu, cost in placement.standalone_costs.items() if math.isfinite(cost)
        }
        best = min(finite_costs, key=finite_costs.__getitem__)
        if best not in placement.gpus:
            lines.append(
                f"{placement.service.name}: without other services {best} would be cheaper, "
                f"{format_count(finite_costs[best])} USD a day; others use it, or its stock is too "
                "small."
            )
    if not fleet.is_proven:
        lines.append("Not every division was tried: another may cost less.")
    return lines


def counted_services(num_services: int, num_jobs: int) -> str:
    """Return the numbers of services and jobs as text."""
    text = format_counted(num_services, "service")
    return f"{text} and {format_counted(num_jobs, 'job')}" if num_jobs else text


def _cost_line(fleet: SharedFleet) -> Iterator[str]:
    """Yield the cost of a day and of a month, and the power at the peak, where known."""
    parts = []
    if math.isfinite(fleet.cost):
        cost, month = map(format_count, (fleet.cost, fleet.cost_per_month))
        parts.append(f"{cost} USD a day, {month} a month")
    if math.isfinite(fleet.power_kw):
        limit = ""
        if math.isfinite(fleet.power_limit_kw):
            limit = f" of {format_kw(KILOWATT * fleet.power_limit_kw)}"
        parts.append(f"{format_kw(KILOWATT * fleet.power_kw)}{limit} at the peak")
    if parts:
        yield f"{'; '.join(parts)}."


def _too_much_power(fleet: SharedFleet) -> Iterator[str]:
    """Yield the GPU types that exceed the limit of the power if everything runs on them."""
    for gpu, pool in fleet.on_one_type.items():
        if pool.power_kw > fleet.power_limit_kw:
            drawn = format_kw(KILOWATT * pool.power_kw)
            more = format_percent(pool.power_kw / fleet.power_limit_kw - 1)
            yield f"All on {gpu} would draw {drawn}, {more} above the limit."


def placed_columns(rows: Rows) -> list[Column]:
    """Return the table columns of each service's GPU types and its cost on other types.

    ``rows`` are those of `planner.decide.sizing.shared_services.SharedFleet`.
    """
    placed = [row for row in rows if number_of(row, "share") > 0]
    # The one pool that pools by length are compared with stands in the answer.
    placed = [row for row in placed if row["service"] != ALL_PROMPTS] or placed
    plans = [
        f"{row[workload.profile_kind]} {layout_of(workload, row)}"
        for row in placed
        for workload in [workload_of_row(row)]
    ]
    hours = [7 * number_of(row, "hours_per_day") for row in placed]
    cells = [number_cell(hour, format_significant, "-") for hour in hours]
    job_columns = [Column("hours", cells, "job hours /week")]
    return [
        Column("service", [str(row["service"]) for row in placed], numeric=False),
        Column("model", [str(row["model"]) for row in placed], numeric=False),
        Column(
            "peak",
            number_cells(placed, _PEAK, format_significant),
            "requests /s",
        ),
        *(job_columns if any(map(math.isfinite, hours)) else []),
        Column("gpu", [str(row["gpu"]) for row in placed], "GPU", numeric=False),
        *gpu_count_columns(placed),
        Column(
            "a_day",
            number_cells(placed, _STANDALONE_COLUMNS),
            "all here USD/day",
        ),
        Column(
            "others", [_others(row, rows) for row in placed], "all there USD/day", numeric=False
        ),
        Column("plan", plans, numeric=False),
    ]


def _others(placed: Row, rows: Rows) -> str:
    """Return GPUs and USD per day if a service ran on an unused GPU type: ``b200 16: 1,200``."""
    others = []
    for row in rows:
        if row["service"] != placed["service"] or number_of(row, "share") > 0:
            continue
        text = ": no"
        if row["feasible"]:
            cost = format_count(number_of(row, _STANDALONE_COLUMNS))
            text = f" {format_count(number_of(row, 'num_gpus'))}: {cost}"
        others.append(f"{row['gpu']}{text}")
    return "; ".join(others)


def pool_columns(rows: Rows) -> list[Column]:
    """Return the table columns of each GPU type that the services share."""
    names = {
        "stock": "stock", "most_gpus": "most GPUs", "base_gpus": "held all day",
        "gpu_hours": "GPU-hours", "cost_usd": "USD /day",
    }  # fmt: skip
    return [
        Column("gpu", [str(row["gpu"]) for row in rows], "GPU", numeric=False),
        *(Column(name, number_cells(rows, name), head) for name, head in names.items()),
    ]


def add_services(files: RowFiles, fleet: SharedFleet, command: Sequence[str]) -> None:
    """Write a row for each service on each type, the answer and the pools."""
    files.add(blocks(fleet.table))
    pools = [pool.row for pool in fleet.pools]
    fields = {}
    if files.has_object:
        fields = option_fields(_fleet_options(fleet), fleet.price_change, fleet.budget)
    files.finish(
        question_manifest(fleet.request, command), answer=answer_lines(fleet), pools=pools, **fields
    )


def _fleet_options(fleet: SharedFleet) -> list[PurchaseOption]:
    """Return the ways to rent, reserve or own one type of GPU for all services and jobs.

    Types without enough stock or above the limit of the power are left out.
    """
    options: list[PurchaseOption] = []
    for gpu, pool in fleet.on_one_type.items():
        if pool.peak_gpus > pool.stock or pool.power_kw > fleet.power_limit_kw:
            continue
        counts = [pool.peak_gpus + pool.more_gpus[column] for column in GPUS_BY_CONFIDENCE]
        needs = GpuNeeds(gpus=np.array(pool.gpus), hours=np.array(pool.hours))
        options += options_of_needs(fleet.request, gpu, needs, counts=counts)
    return options


def option_fields(
    options: Sequence[PurchaseOption], change: PriceChange, budget: Budget | None
) -> dict[str, object]:
    """Return the fields of a report on the ways to rent, reserve or own GPUs; {} without any."""
    fields: dict[str, object] = {}
    if options:
        fields["options"] = [option.row for option in options]
    if options and change != UNCHANGED:
        fields["price_change"] = change.text
    if options and budget is not None and math.isfinite(budget.rate):
        fields["budget_per_year_usd"] = budget.rate * YEAR
    return fields


def length_pools_lines(length_pools: LengthPools) -> list[str]:
    """Return sentences that compare pools by prompt length with a single pool."""
    pools, mixed = length_pools.pools, length_pools.mixed
    gpus_by_pool = " + ".join(
        format_count(part.peak.num_gpus)
        for placement in pools.placements
        for part in placement.parts
    )
    lines = [
        f"{len(pools.placements)} pools by length: {format_count(pools.num_gpus)} GPUs "
        f"({gpus_by_pool}), {format_count(pools.cost)} USD a day; one pool: "
        f"{format_count(mixed.num_gpus)} GPUs, {format_count(mixed.cost)} USD"
    ]
    if len(pools.placements) < 2:
        return [*lines, "All prompts are in one pool."]
    pools_unlimited, mixed_unlimited = length_pools.unlimited
    latency_cost = (
        f"latency limits take {format_count(pools.num_gpus - pools_unlimited)} of "
        f"{format_count(pools.num_gpus)} GPUs with pools, "
        f"{format_count(mixed.num_gpus - mixed_unlimited)} of {format_count(mixed.num_gpus)} with "
        "one."
    )
    fewer = mixed.num_gpus - pools.num_gpus
    is_by_limits = (
        2 * abs(length_pools.limits_saved) > abs(fewer) and length_pools.limits_saved * fewer > 0
    )
    if abs(length_pools.saved) < _MIN_DIFFERENCE:
        reason = "Pools cost as much as one pool:"
    elif length_pools.saved > 0:
        share = format_percent(length_pools.saved)
        cause = "waiting" if is_by_limits else "layouts and batches that suit each length"
        reason = f"Pools save {share}; the gain is in the {cause}:"
    else:
        share = format_percent(-length_pools.saved)
        cause = (
            "each keeps every limit for its own prompts, also the longest"
            if is_by_limits
            else "fewer requests share each replica"
        )
        reason = f"Pools cost {share} more than one pool; with them {cause}:"
    return [*lines, f"{reason} {latency_cost}"]


def cut_rows(pools: LengthPools) -> list[dict[str, Value]]:
    """Return a row for each tried cut: the longest prompts [tokens] and the cost per day."""
    return [
        {
            _PROMPTS_UP_TO: ", ".join(f"{end}" for end in cut.ends),
            _DAY: cut.cost if math.isfinite(cut.cost) else None,
        }
        for cut in pools.cuts
    ]


def cut_columns(rows: Rows) -> list[Column]:
    """Return the table columns of the tried cuts, the cheapest cut first."""
    return [
        Column(_PROMPTS_UP_TO, [str(row[_PROMPTS_UP_TO]) for row in rows], "prompts up to tokens"),
        Column(_DAY, number_cells(rows, _DAY), "USD /day"),
    ]


def add_length_pools(files: RowFiles, length_pools: LengthPools, command: Sequence[str]) -> None:
    """Write a row for each pool and for the single pool, then the answer and the cuts."""
    files.add(blocks(length_pools.table))
    pools = [pool.row for pool in length_pools.pools.pools]
    manifest = question_manifest(length_pools.request, command)
    answer, cuts = length_pools_lines(length_pools), cut_rows(length_pools)
    files.finish(manifest, answer=answer, pools=pools, cuts=cuts)


_MILLION = 1e6
PER_MEGAWATT = "gpus_per_megawatt"
"""A column that only rows of a size within a budget have."""
MOST_TOKENS = "The most tokens first"
_TOKEN_COST = "cost_per_million_tokens_usd"
# The divisor of a column of numbers, and the function that formats them.
_COUNTS, _THOUSANDS = (1.0, format_count), (1e3, format_significant)
_CARRIED = {"gpu": 0, "num_gpus": 0, "tokens": 0, "cost_per_hour_usd": 1, "profit": 1, "plan": 5}


def format_budget(sizes: Sizes) -> str:
    """Return the power and the cost of the budget as text for a title."""
    power, budget = sizes.request.constraints.get("power"), sizes.budget
    texts = [] if power is None else [format_kw(power)]
    if budget is not None:
        texts.append(f"{format_usd(budget.rate * HOUR)} an hour")
    return " and ".join(texts)


def carried_lines(sizes: Sizes) -> list[str]:
    """Return lines on the GPUs with most tokens, cheapest tokens and most profit in a budget."""
    results = [(size, size.carried) for size in sizes.feasible if size.carried is not None]
    best_by_measure = {
        "Most tokens": max(results, key=lambda pair: pair[1].output_tokens),
        "Cheapest per token": min(
            results, key=lambda pair: _replace_nan(_per_million(pair[1]), math.inf)
        ),
        "Most profit": max(results, key=lambda pair: _replace_nan(pair[1].profit, -math.inf)),
    }
    lines, measures_by_gpu = [], dict[str, list[str]]()
    for measure, (size, _) in best_by_measure.items():
        measures_by_gpu.setdefault(f"{size.gpu} {size.contract}", []).append(measure)
    for measures in measures_by_gpu.values():
        size, budget_result = best_by_measure[measures[0]]
        first, *others = measures
        lines.append(
            _budget_line(
                ", ".join([first, *(measure.lower() for measure in others)]), size, budget_result
            )
        )
    best = results[0][1]
    if best.pue is not None:
        lines.append(
            f"Power at the building's meter: GPUs, hosts, network and cooling (PUE {best.pue:g})."
        )
    return [*lines, _price_line(best)]


def _replace_nan(value: float, other: float) -> float:
    return other if math.isnan(value) else value


def _per_million(budget_result: BudgetResult) -> float:
    return number_or_nan(budget_result.fleet.row["cost_per_million_tokens_usd"])


def _budget_line(measure: str, size: Size, budget_result: BudgetResult) -> str:
    """Return the largest fleet within a budget as text: GPUs, plan, rates, power and cost."""
    row, workload = budget_result.fleet.row, workload_of("serve")
    tokens_per_user = number_or_nan(row["tokens_per_s_per_user"])
    parts = [
        f"{measure}: {format_count(budget_result.fleet.num_gpus)} x {size.gpu} "
        f"{size.contract}".rstrip(),
        f"{row['engine']}, {(workload.wording.format_brief or workload.wording.format_short)(row)}",
        f"{format_large(budget_result.output_tokens)} output tokens/s",
        f"{format_significant(number_or_nan(row['requests_per_s']))} requests/s of "
        f"{format_count(budget_result.users)} "
        f"users at once with {format_significant(tokens_per_user)} tokens/s each",
    ]
    if math.isfinite(budget_result.megawatts):
        parts.append(f"{format_kw(1e6 * budget_result.megawatts)}")
    if math.isfinite(budget_result.fleet.cost):
        million = format_significant(_per_million(budget_result))
        parts.append(
            f"{format_usd(budget_result.fleet.cost)} per hour, {million} USD per "
            "million output tokens"
        )
    if math.isfinite(budget_result.profit):
        parts.append(f"{format_usd(budget_result.profit)} profit per hour")
    return "; ".join(parts)


def _price_line(budget_result: BudgetResult) -> str:
    """Return a sentence on the API price for which the tokens are sold, and the break-even."""
    offer = budget_result.offer
    if offer is None:
        return f"No profit: {budget_result.api.note[:1].lower()}{budget_result.api.note[1:]}"
    price = offer.price
    number_of_prices = len(budget_result.api.current) or len(budget_result.api.offers)
    in_out = " and ".join(
        f"{format_significant(_MILLION * token_price)} USD {kind}"
        for token_price, kind in ((price.input, "in"), (price.output, "out"))
    )
    age = " (old)" if price.is_old else ""
    return (
        f"Profit: all tokens sold at full load at the median of {number_of_prices} published API "
        f"prices{age}, {price.provider} with {in_out} per Mtok, less the price of the GPUs. The "
        f"first pays from {format_percent(offer.utilization)} of its load on."
    )


def carried_rank(column: str) -> int:
    """The rank of a column of `carried_columns`; a narrow terminal omits the largest."""
    return _CARRIED.get(column, 3)


def carried_columns(rows: Sequence[Row]) -> list[Column]:
    """Return the table columns of what each GPU type achieves within the budget."""
    contracts = [str(row.get("contract") or "") for row in rows]
    workload = workload_of("serve")
    plans = [f"{row['engine']} {layout_of(workload, row)}" for row in rows]
    return [
        Column("gpu", [str(row["gpu"]) for row in rows], "GPU", numeric=False),
        *([Column("contract", contracts, numeric=False)] if len({*contracts}) > 1 else []),
        *(
            Column(name, number_cells(rows, column, format_number, divisor=divisor), head)
            for name, column, head, (divisor, format_number) in (
                ("num_gpus", "num_gpus", "GPUs", _COUNTS),
                ("power", "power_kw", "kW", _COUNTS),
                ("per_mw", PER_MEGAWATT, "GPUs /MW", _COUNTS),
                ("tokens", "output_tokens_per_s", "k tok/s", _THOUSANDS),
                ("tokens_mw", "output_tokens_per_s_per_megawatt", "k tok/s /MW", _THOUSANDS),
                ("users", "users", "users", _COUNTS),
                ("cost_per_hour_usd", "cost_per_hour_usd", "USD /h", _COUNTS),
                (_TOKEN_COST, _TOKEN_COST, "USD /Mtok", (1.0, format_significant)),
                ("profit", "profit_per_hour_usd", "profit USD/h", _COUNTS),
                ("profit_mw", "profit_per_hour_per_megawatt_usd", "profit USD/h /MW", _COUNTS),
            )
        ),
        Column("plan", plans, numeric=False),
    ]

"""Pages of results of `planner size`, `planner compare` and `planner explain`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from planner.base.enums import Contract
from planner.base.formatting import format_count, format_percent, format_probability, join_words
from planner.decide.sizing.autoscaling import HOURS
from planner.decide.sizing.daily_schedule import DAYS_PER_MONTH
from planner.decide.sizing.purchase import (
    UNCHANGED,
    PriceChange,
    PurchaseOption,
    read_price_change,
)
from planner.optimize.result_columns import evidence_rank_of
from planner.question.names import CONTRACT, GPU, LIMITS_PROBABILITY, NUM_GPUS
from planner.question.terms import term_of_column
from planner.show.output_blocks import (
    BEST,
    TIE,
    Bars,
    Block,
    Column,
    Figure,
    Page,
    RankingChart,
    RankingRow,
    Scatter,
    Section,
    make_lines,
    text_table,
)
from planner.show.presenters.comparison import (
    LETTERS,
    format_compared,
    results_table,
    settings_table,
    spec_numbers_blocks,
)
from planner.show.presenters.format_results import (
    format_result,
    label,
    layout_of,
    number_of,
)
from planner.show.presenters.purchase import (
    HOURLY,
    days_blocks,
    decision_sections,
    hour_columns,
    options_chart,
    priced_rows,
    prices_section,
    recommendation_lines,
    recommended_option,
    without_prices,
)
from planner.show.presenters.recommendation import row_ends
from planner.show.presenters.row_tables import (
    MOST_ROWS,
    PLACEMENT_COLUMNS,
    PLAN,
    make_table,
    shown_columns,
)
from planner.show.presenters.services import (
    MOST_TOKENS,
    PER_MEGAWATT,
    carried_columns,
    counted_services,
)
from planner.show.presenters.size_screen import RECOMMENDED
from planner.show.presenters.sizes import (
    BY_COST,
    COSTS,
    choice_columns,
    feasible_rows,
    format_hardware,
    size_tables,
)
from planner.show.reports import (
    ComparedResult,
    PlansReport,
    ResultRow,
    SizeReport,
    SpecsReport,
)
from planner.specs.catalogue import Catalogue
from planner.ui.pages.result_tables import (
    MOST_BARS,
    assumptions,
    breakdowns,
    evidence,
    figures,
    front_chart,
    headline,
    hints,
    manifest_section,
    price_lines,
    ranking,
    ranking_chart,
    specs_of_rows,
    verb,
    with_glossary,
)
from planner.workloads.workload import Workload

_DIFFERENCES_TITLE = "How do they differ?"


def specs_page(report: SpecsReport) -> Page:
    """Return the page of a comparison of specs: the numbers that differ."""
    count = sum(map(len, report.specs.values()))
    text = f"They differ in {format_count(count)} numbers."
    return Page(
        title="How do these specs differ?",
        question=report.version_notes,
        answer=[],
        headline=text if count else "They do not differ.",
        sections=[
            Section(title=_DIFFERENCES_TITLE, blocks=[*spec_numbers_blocks(report, is_full=True)]),
            manifest_section(report.manifest),
        ],
    )


def plans_page(report: PlansReport) -> Page:
    """Return the page of compared plans: the best one, by how much, and all differences."""
    plans = report.plans
    names = [f"{letter}: {plan.name}" for letter, plan in zip(LETTERS, plans, strict=False)]
    results = [result for result in report.results if any(map(math.isfinite, result.values))]
    wins = Counter(result.best for result in results)
    best = wins.most_common(1)[0][0] if wins else 0
    if results:
        best_in = [label(result.name) for result in results if result.best == best]
        answer = f"{names[best]} is best in {join_words(best_in)}."
    elif sum(not plan.impossible for plan in plans) > 1:
        answer = "They do not differ."
    else:
        answer = "Fewer than two of them are possible."
    impossible = {
        name: plan.impossible for name, plan in zip(names, plans, strict=True) if plan.impossible
    }
    missing = {**impossible, **report.without_plan}
    no_settings = make_lines("Their settings do not differ.")
    sections = [
        Section(title="What are the results of each?", blocks=[results_table(report, names)]),
        Section(
            title=_DIFFERENCES_TITLE,
            blocks=[settings_table(report, names) if report.settings else no_settings],
        ),
        Section(title="Where do time and memory go?", blocks=[*_parts(report, names)]),
        *([_no_plan_section([*missing.items()], "plan", "")] if missing else []),
        manifest_section(report.manifest),
    ]
    page = Page(
        title=f"Which of these {format_count(len(names))} plans is better?",
        question=[
            *(f"{n}: {plan.subject}".rstrip(": ") for n, plan in zip(names, plans, strict=True)),
            *report.version_notes,
        ],
        # The headline has the results in which the best plan is best.
        answer=[
            sentence
            for sentence in report.sentences
            if not sentence.startswith(f"{LETTERS[best]} is best in ")
        ],
        subject=str(plans[best].answers.get("model", "")),
        headline=answer,
        figures=figures(
            {result.name: result.values[best] for result in results},
            {r.name: ends for r in results if (ends := r.intervals[best]) is not None},
        )
        if results
        else [],
        evidence=evidence(plans[best].basis),
        chart=_ranking(results, names, best) if results else None,
        sections=sections,
    )
    return with_glossary(page, plans[0].workload)


def _no_plan_section(reasons: Sequence[tuple[str, str]], head: str, noun: str) -> Section:
    """Return a folded table of what has no plan, and why."""
    count = format_count(len(reasons))
    no_plan = text_table((head, "why not"), reasons, text_columns=(0, 1), name="no_plan")
    folded = replace(no_plan, caption=f"{count}{noun} without a plan, and why", is_folded=True)
    return Section(title="What is not possible, and why?", blocks=[folded])


def _ranking(results: Sequence[ComparedResult], names: Sequence[str], best: int) -> RankingChart:
    """Return a chart of all plans by the first result in which the best plan is better."""
    result = next(result for result in results if result.best == best)
    column, values = result.name, result.values
    term = term_of_column(column)
    sign = -1 if term is not None and term.better == "high" else 1
    order = [index for index, value in enumerate(values) if math.isfinite(value)]
    order.sort(key=lambda index: (index != best, sign * values[index]))
    rows = [
        RankingRow(
            label=names[index],
            value=values[index],
            ends=result.intervals[index],
            mark=BEST if index == best else TIE if index in result.ties else "",
            hints={label(other.name): format_compared(other, index).text for other in results},
        )
        for index in order
    ]
    return ranking_chart(
        "answers", f"The {label(column)} of each, and 90 % intervals", column, rows
    )


def _parts(report: PlansReport, names: Sequence[str]) -> Iterator[Block]:
    """Yield charts of the plans' step times and memory by part."""
    kinds = {f"Time of the {kind}": (parts, "s") for kind, parts in report.times_s.items()}
    for caption, (parts, unit) in {
        **kinds,
        "Memory of the fullest GPU": (report.memory_gib, "GiB"),
    }.items():
        shown = {
            name: [value if math.isfinite(value) else 0.0 for value in values]
            for name, values in parts.items()
        }
        if shown:
            name = caption.lower().replace(" ", "_")
            yield Bars(name=name, caption=f"{caption}: the parts in which they differ", unit=unit,
                       labels=names, parts=shown)  # fmt: skip


_HOUR, _COST = "time", "cost_usd"
RENTED = str(Contract.ON_DEMAND)
_CHOICES = "What are the choices?"
_NONE = "No GPU does."
_DAY_COLUMNS = ("hours", "base_contract", "hourly_contract", "cost_usd")
_CHOICE_COLUMNS = (GPU, CONTRACT, "choice", NUM_GPUS)


def sizes_page(
    report: SizeReport, catalogue: Catalogue, price_change: PriceChange | None = None
) -> Page:
    """Return the page of a result of `planner size`. Raises SpecError if it lacks a column.

    ``price_change`` replaces that of the result.
    """
    options = [PurchaseOption.of_row(row) for row in report.options]
    if price_change is None:
        price_change = read_price_change(report.price_change) if report.price_change else UNCHANGED
    rows = feasible_rows(report)
    infeasible = [row for row in report.rows if not row.get("feasible", True)]
    is_carried = bool(rows) and PER_MEGAWATT in rows[0]  # the most tokens first
    has_screen = bool(report.decision) and not (report.pools or is_carried)
    budget = report.budget_per_year_usd
    placed = [row for row in rows if report.pools and number_of(row, "share") > 0]
    sections = [*decision_sections(options, price_change, budget, report.other_precision)]
    priced = [] if options or report.pools else prices_section(priced_rows(rows))
    if rows and _HOUR in rows[0]:
        sections.append(Section(title="What does a day need?", blocks=_day(report, rows)))
    elif report.pools:
        sections.append(
            Section(title="Where does each service run?", blocks=[*size_tables(report)])
        )
    elif rows:
        plans = [make_lines(*report.answer)] if has_screen else []
        sections.append(Section(title=_CHOICES, blocks=[*_choices(report.workload, rows), *plans]))
    if infeasible and not report.pools:
        reasons = [(format_hardware(row), str(row["reason"] or "no plan")) for row in infeasible]
        sections.append(_no_plan_section(reasons, "GPU", " GPUs"))
    notes = without_prices(report.notes) if options or priced else report.notes
    if notes:
        sections.append(Section(title="Notes", blocks=[make_lines(*notes)]))
    model = str(
        (rows[0].get("model") if rows else "") or report.manifest.get("model") or "the model"
    )
    lines = report.answer
    if has_screen:  # without the line on limits that the question has, too
        lines = tuple(
            line.replace(f"{RECOMMENDED}  ", "Recommended: ", 1)
            for line in report.decision[1:]
            if ": " not in line
            or not any(line.partition(": ")[2] in text for text in report.question)
        )
    page = Page(
        title=f"How many GPUs does it take to {verb(report.workload)} {model}?",
        subject=model,
        headline=_NONE,
        question=[*report.question, *report.version_notes],
        answer=[*recommendation_lines(options, price_change, budget), *lines] or [_NONE],
        sections=[
            *sections,
            *priced,
            assumptions(specs_of_rows(placed or rows[:1]), catalogue),
            manifest_section(report.manifest),
        ],
    )
    if report.days:
        page = _with_cheapest_day(page, report, options, price_change)
    elif report.pools and not report.cuts:
        page = _with_services(page, report, options, price_change)
    elif rows and not is_carried and not report.cuts:
        option = recommended_option(options, price_change)
        contract = str(rows[0].get(CONTRACT) or RENTED)
        is_other = option is not None and option.contract != contract
        page = _with_cheapest_choice(page, report.workload, rows, contract if is_other else "")
    elif rows:  # within a budget, or in pools by length
        basis = evidence(rows[0].get("basis"), rows[0].get("evidence_runs"))
        page = replace(page, headline=page.answer[0], answer=page.answer[1:], evidence=basis)
    return with_glossary(page, report.workload.name)


def _with_cheapest_choice(
    page: Page, workload: Workload, rows: Sequence[ResultRow], contract: str
) -> Page:
    """Return the page with the cheapest GPUs first, and their probability to keep the limits.

    ``contract`` is that of the rows if GPUs under another one cost less; "" if none do.
    """
    row, column = rows[0], next((name for name in COSTS if name in rows[0]), NUM_GPUS)
    chance = number_of(row, LIMITS_PROBABILITY)
    confidence_note = (
        f" {format_probability(chance)} of runs like this keep all limits."
        if math.isfinite(chance)
        else ""
    )
    cheapest = {format_hardware(choice): choice for choice in reversed(rows)}
    is_least = column == NUM_GPUS or number_of(row, column) <= min(
        number_of(choice, column) for choice in rows
    )
    wins = f"is cheapest {contract}".strip()
    if not is_least:  # a cheaper one is tied and has less evidence
        wins = "runs best"
    choices = [choice for choice in rows if cheapest[format_hardware(choice)] is choice]
    return replace(
        page,
        question=[*page.question, *price_lines(row)],
        headline=f"{headline(workload, row, wins)}{confidence_note}",
        figures=[
            replace(figure, between=figure.between or _spread(figure, row, column))
            for figure in figures(row, row_ends(row), chance, [NUM_GPUS, column])
        ],
        evidence=evidence(row.get("basis"), row.get("evidence_runs")),
        chart=ranking(
            workload, choices, column,
            lambda choice: (
                f"{format_count(choice[NUM_GPUS])} x {format_hardware(choice)}"
            ),
            "The cost on each GPU, the best first",
        ),
    )  # fmt: skip


def _spread(figure: Figure, row: ResultRow, column: str) -> str:
    """Return what a number of GPUs or an hourly cost lies between, as text; "" if unknown."""
    low, high = number_of(row, "num_gpus_predicted"), number_of(row, "num_gpus_at_90")
    if figure.name == label(NUM_GPUS):
        is_sized = math.isfinite(low) and math.isfinite(high)
        return f"{low:,.0f} predicted, {high:,.0f} at 90 %" if is_sized else ""
    price = number_of(row, "price_per_gpu_hour_usd")
    ends = [number_of(row, f"price_{end}_per_gpu_hour_usd") for end in ("low", "high")]
    if "USD" not in figure.text or not price > 0 or not ends[0] < ends[1]:
        return ""
    shown = [format_result(column, number_of(row, column) * end / price) for end in ends]
    return f"{shown[0]} to {shown[1]} by seller"


def _gpus_between(options: Sequence[PurchaseOption], gpu: object) -> str:
    """Return the GPUs at the prediction and at 90 % confidence as text; "" if unknown."""
    option = next((option for option in options if option.gpu == gpu), None)
    if option is None or option.predicted is None or option.at_90 is None:
        return ""
    low, high = map(format_count, (option.predicted, option.at_90))
    return f"{low} predicted, {high} at 90 %"


def _cost_between(options: Sequence[PurchaseOption], pools: Sequence[ResultRow]) -> str:
    """Return the cost of a day at the lowest and highest prices as text; "" if unknown.

    ``pools`` have the GPUs that are paid all day, and all GPU-hours.
    """
    prices = {(option.gpu, option.contract): (option.low, option.high) for option in options}
    ends = [0.0, 0.0]
    for pool in pools:
        base = HOURS * number_of(pool, "base_gpus")
        parts = {"base_contract": base, "hourly_contract": number_of(pool, "gpu_hours") - base}
        for column, gpu_hours in parts.items():
            if not gpu_hours:
                continue
            pair = prices.get((str(pool[GPU]), str(pool.get(column) or RENTED)))
            if pair is None:
                return ""
            ends = [end + gpu_hours * price for end, price in zip(ends, pair, strict=True)]
    low, high = (format_result(_COST, end) for end in ends)
    return f"{low} to {high} by seller"


def _with_cheapest_day(
    page: Page, report: SizeReport, options: Sequence[PurchaseOption], change: PriceChange
) -> Page:
    """Return the page with the cheapest daily schedule first."""
    day = report.days[0]
    terms = [str(day.get(name) or "") for name in ("base_contract", "hourly_contract")]
    if not day["base_gpus"]:
        terms = terms[1:]
    option = recommended_option(options, change, report.budget_per_year_usd)
    contracts = ""
    if option is not None and option.contract not in terms:  # another contract costs less
        contracts = f" {' and '.join(dict.fromkeys(filter(None, terms)))}"
    basis = next((row["basis"] for row in report.rows if row.get("basis")), "")
    base, cost = format_count(day["base_gpus"]), format_result(_COST, day[_COST])
    return replace(
        page,
        headline=f"A day of {page.subject} is cheapest{contracts} on {day[GPU]}: "
        f"{format_count(day['most_gpus'])} GPUs at its peak, {base} held all "
        f"day, {cost}.",
        figures=[
            Figure(
                name="GPUs at the peak",
                text=format_count(day["most_gpus"]),
                between=_gpus_between(options, day[GPU]),
            ),
            Figure(
                name="cost of a day",
                text=cost,
                between=_cost_between(options, [day])
                or f"{format_count(day['gpu_hours'])} GPU-hours",
            ),
            Figure(
                name="used",
                text=format_percent(day["utilization"]),
                between="of the payment",
            ),
        ],
        evidence=evidence(basis),
        chart=ranking(
            report.workload, report.days, _COST, lambda row: str(row[GPU]), "The cost of a day"
        ),
    )


def _with_services(
    page: Page, report: SizeReport, options: Sequence[PurchaseOption], change: PriceChange
) -> Page:
    """Return the page with the GPUs of all services and their cost first."""
    rows, pool_rows = report.rows, report.pools
    names = [*dict.fromkeys(str(row["service"]) for row in rows)]
    jobs = {row["service"] for row in rows if math.isfinite(number_of(row, "hours_per_day"))}
    counts = counted_services(len(names) - len(jobs), len(jobs))
    where = join_words([f"{format_count(pool['most_gpus'])} x {pool[GPU]}" for pool in pool_rows])
    total = sum(pool[_COST] for pool in pool_rows)
    gpus = sum(pool["most_gpus"] for pool in pool_rows)
    hours = format_count(sum(pool["gpu_hours"] for pool in pool_rows))
    placed = [row for row in rows if number_of(row, "share") > 0]
    weakest = max(placed, key=evidence_rank_of, default=rows[0])
    return replace(
        page,
        title=f"Where do {join_words(names)} run together?",
        headline=(
            f"{counts} run on {where}: {format_result(_COST, total)} a day."
        ),
        figures=[
            Figure(
                name="GPUs at most", text=format_count(gpus),
                between=_gpus_between(options, pool_rows[0][GPU] if len(pool_rows) == 1 else "")
                or f"{hours} GPU-hours a day",
            ),
            Figure(
                name="cost of a day", text=format_result(_COST, total),
                between=_cost_between(options, pool_rows)
                or f"{format_result(_COST, total * DAYS_PER_MONTH)} a month",
            ),
        ],
        chart=options_chart(options, change, report.budget_per_year_usd),
        answer=[line for line in page.answer if line != report.answer[0]],
        evidence=evidence(weakest.get("basis"), weakest.get("evidence_runs")),
    )  # fmt: skip


def _day(report: SizeReport, rows: Sequence[ResultRow]) -> list[Block]:
    """Return tables of a day on each GPU and by hour; files of older versions have only hours."""
    gpus = [str(row["gpu"]) for row in rows]
    columns = hour_columns(rows)
    if len(set(gpus)) > 1:
        columns.insert(0, Column("gpu", gpus, "GPU", numeric=False))
    others = [name for name in rows[0] if name in _DAY_COLUMNS]
    hours = make_table("hours", HOURLY, report.workload, rows, others, first=columns)
    chart = Scatter(
        name="day", caption="GPUs over the day", table="hours", x=_HOUR, y="GPUs",
        by="gpu" if len(set(gpus)) > 1 else "",
    )  # fmt: skip
    if not report.days:
        return [chart, hours]
    return [chart, *days_blocks(report.days, report.day, report.scaled, ()), hours]


def _choices(workload: Workload, rows: Sequence[ResultRow]) -> list[Block]:
    """Return a table of all choices, and a chart of their cost and number of GPUs."""
    is_carried = PER_MEGAWATT in rows[0]
    first = carried_columns(rows) if is_carried else [*choice_columns(rows)]
    margins = [name for name in rows[0] if name.startswith("spare_")]
    costs = [name for name in COSTS if name in rows[0]]
    shown = {PLAN, *(column.name for column in first)}
    others = shown_columns(
        workload, rows, costs, dict.fromkeys([*_CHOICE_COLUMNS, *PLACEMENT_COLUMNS])
    )
    names = [name for name in dict.fromkeys([*others, *margins]) if name not in shown]
    caption = MOST_TOKENS if is_carried else BY_COST
    table = make_table("choices", caption, workload, rows, names, [BEST], first=first)
    table = replace(table, hints=[hints(workload, row) for row in rows[:MOST_ROWS]])
    labels = [
        f"{row['num_gpus']:,} x {format_hardware(row)}: {layout_of(workload, row)}" for row in rows
    ]
    bars = breakdowns(labels[:MOST_BARS], rows[:MOST_BARS])
    axes = [head.name for head in table.heads]
    return [*front_chart("choices", axes, [*costs[:1], "num_gpus"]), table, *bars]

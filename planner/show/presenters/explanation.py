"""An explanation as people read it: what bounds a plan, what would change it, what it assumes;
and operators one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from planner.base.csv_cells import Row, number_or_nan
from planner.base.formatting import (
    format_count,
    format_parameter,
    format_percent,
    format_significant,
)
from planner.base.read_files import JsonObject
from planner.base.units import GIB
from planner.decide.explain.explanation import MEMORY, Explanation, RankedAssumption
from planner.decide.explain.operators import KINDS, OperatorTimes, work_dict
from planner.decide.explain.plan_comparison import Difference, PartDifference, PredictedPlan
from planner.decide.explain.sensitivity import SOFTWARE, Sensitivity, relative_change
from planner.decide.explain.step_breakdown import (
    FORMULAS,
    ExplainedPart,
    ExplainedStep,
    SpecSources,
    format_quantity,
    format_seconds,
    spec_numbers,
)
from planner.errors import InfeasibleError
from planner.optimize.collector import value_or_none
from planner.optimize.source import first_row
from planner.question.request import Request
from planner.question.terms import columns_about, glossary, is_answer_column, term_of_column
from planner.show.output_blocks import (
    BAD,
    GAP,
    TOTAL,
    Block,
    Column,
    Title,
    fit_table,
    make_lines,
    save_blocks,
    text_table,
)
from planner.show.presenters.format_results import (
    format_host_memory,
    format_paged_states,
    format_result,
    label,
    share,
    short_plan,
)
from planner.show.presenters.infeasible import infeasible_message, infeasible_reason, question_title
from planner.show.presenters.json_files import command_manifest, plan_evidence, plan_manifest
from planner.show.presenters.load_check import load_line
from planner.show.presenters.pareto_front import plan_objective_column
from planner.show.presenters.plan_report import format_verdict, log_line
from planner.show.presenters.prices import charged_in_full_line
from planner.show.presenters.row_tables import RowFiles, blocks, result_blocks
from planner.show.presenters.uncertainty import format_column_range, other_formats, tie_text
from planner.show.reports import ExplanationReport, made_report
from planner.workloads.make_plan import evaluate, make_single_plan, result_of

_SHORTEST = 5
_CHANGES = 3
_PART_HEADS = ("longest parts", "time", "%", "bound by", "of roofline")
_MIN_SHOWN_SHARE = 5e-3
HEADS = ("10 % change of", "affects", "worse", "better")
MIN_SHOWN_CHANGE = 5e-4
"""Changes below this share are not shown."""

_MIN_SHOWN_CHANGE = 2e-3
_QUESTION_FACTS = (SOFTWARE, "question")
_FACTS = 7
_OPTIONS = ("10 % worse", "10 % better")
_MOST = 4
_FIRST = 2
_PEAK = "peak_memory_gib"
_MIN_EXCESS = 1.005
_PEAKS = {"bandwidth_fraction": "the memory bandwidth", "compute_fraction": "the dense peak"}
_MIN_TERM_DIFFERENCE = 0.002
"""The short form omits terms that differ by less than this share of the total."""


def summarize_explanation(explained: Explanation, *, is_open: bool = False) -> dict[str, object]:
    """Return the fields of the first screen: results, longest parts, changes and assumptions.

    ``is_open``: the plan is the one that a search recommends.
    """
    plan, evaluation, difference = explained.plan, explained.evaluation, explained.difference
    row = explained.row
    load = load_line(plan, evaluation.candidates)
    if difference is None:
        tables, changes = _short_step_blocks(explained), _change_lines(explained)
    else:
        texts = against_lines(difference, is_full=False)
        title = make_lines("Against the other plan:", mark=TOTAL)
        tables, changes = iter([title, *map(make_lines, texts)]), iter(())
    largest = next((_assumption_text(explained, fact) for fact in explained.assumptions), "")
    return {
        "verdict": format_verdict(plan, evaluation),
        "plan": f"{question_title(plan)}: {short_plan(plan, row)}",
        "load": [load] if load else [],
        "results": _main_results(explained),
        "log": log_line(plan, row),
        "tables": save_blocks(tables),
        "change": [*changes],
        "read_as": ["The plan is the one that planner search recommends."] if is_open else [],
        "assumed": [assumption.name for assumption in explained.assumptions],
        "depends_on": largest,
        "then": "Next: --full for formulas, sources and the rest.",
    }


def _main_results(explained: Explanation) -> dict[str, str]:
    """Return the two main results with their 90 % intervals and roofline bounds as text."""
    row, texts = explained.row, dict[str, str]()
    intervals = explained.predicted.ends
    bound = explained.bound or {}
    for name in explained.columns[:2]:
        if is_answer_column(name) and number_or_nan(row[name]) != number_or_nan(row[name]):
            continue  # nothing is generated
        text = format_result(name, row[name], intervals.get(name))
        term = term_of_column(name)
        is_low = term is not None and (term.better == "low" or term.type == "second")
        peak, value = number_or_nan(bound.get(name)), number_or_nan(row[name])
        # With faster steps a queue may be longer, so the bound may be worse.
        if peak < value if is_low else peak > value:
            text += f"; roofline {format_result(name, bound[name])}"
        texts[label(name)] = text
    machine = explained.plan.source_of(row).inputs.machine
    host_memory = format_host_memory(row, machine)
    return texts | ({"host memory": host_memory} if host_memory else {})


def _short_step_blocks(explained: Explanation) -> Iterator[Block]:
    """Yield the bounds of each kind of step, and one table of the longest parts of all."""
    steps = explained.steps
    most, rows = max(_SHORTEST // max(len(steps), 1), 1), list[tuple[str, ...]]()
    for step in steps:
        name = "whole step" if step.name == "step" else f"{step.name} step"
        several = f"{name}: {format_seconds(step.seconds)}, bound" if steps[1:] else "bound"
        shares = ", ".join(_bound_shares(step, _MIN_SHOWN_SHARE))
        yield make_lines(f"{several.capitalize()} by {shares}", most=1)
        prefix = f"{step.name}: " if steps[1:] else ""
        rows += [(f"{prefix}{title}", *cells) for title, *cells in _part_rows(step, most)]
    if rows:
        yield text_table(_PART_HEADS, rows, text_columns=(0, 3), late=(2, 4))


def _change_lines(explained: Explanation) -> Iterator[str]:
    """Yield the changes of 10 % with the largest effect, and the first other questions."""
    rows = [*what_if_rows(explained, is_full=False)][:_CHANGES]
    texts = [f"{name}: {column} {worse}" for name, column, worse, _ in rows]
    if texts:
        yield f"10 % worse: {'; '.join(texts)}."
    lines = [*question_lines(explained, is_full=False)]
    if lines:
        yield f"Or {'; '.join(lines[:_FIRST])}."


def explanation_blocks(explained: Explanation) -> Iterator[Block]:
    """Yield a plan, its bottlenecks, its parts, its sensitivities, sources and formulas."""
    yield make_lines(question_title(explained.plan), mark=TOTAL, indent="")
    yield make_lines(short_plan(explained.plan, explained.row))
    if line := load_line(explained.plan, explained.evaluation.candidates):
        yield make_lines(line)
    for name, text in _main_results(explained).items():
        yield make_lines(f"{name} {text}")
    if explained.difference is not None:
        yield Title(text="Against the other plan")
        yield from map(make_lines, against_lines(explained.difference))
        if not explained.difference.other.reason:
            yield from _terms_blocks(explained.difference)
    software = str(explained.row[explained.plan.workload.profile_kind])
    for step in explained.steps:
        yield from _step_blocks(step, software)
    yield from _memory_blocks(explained)
    yield from sensitivities_blocks(explained, is_full=True)
    yield from _assumptions_blocks(explained)
    yield from _sources_blocks(explained)


def _step_blocks(step: ExplainedStep, software: str) -> Iterator[Block]:
    """Yield the time of a step, its bounds as shares, its parts, and how each is computed."""
    name = "a step" if step.name == "step" else f"a {step.name} step"
    yield Title(text=f"Time of {name}: {format_seconds(step.seconds)}")
    yield make_lines(f"Bound by {', '.join(_bound_shares(step))}")
    rows = _part_rows(step, len(step.parts))
    yield text_table(
        _PART_HEADS, rows, text_columns=(0, 3), late=(2, 4), name=f"bounds of {step.name}"
    )
    for part in step.parts:
        if part.part.done and part.roofline_share >= _MIN_EXCESS:
            yield make_lines(_beyond_line(part, step.software or software))
    yield Title(text="How these times are computed")
    for part in step.parts:
        terms = [
            f"{n.replace('_', ' ')} {format_seconds(time)}" for n, time in part.part.terms.items()
        ]
        terms_text = f" ({', '.join(terms)})" if len(terms) > 1 else ""
        yield make_lines(f"{part.title}: {format_seconds(part.part.seconds)}{terms_text}")
        for line in _work_lines(part):
            yield make_lines(f"  {line}", indent="    ")


def _bound_shares(step: ExplainedStep, least: float = 0.0) -> list[str]:
    """Return the shares of a step by what bounds them, from the share ``least`` on."""
    return [
        f"{kind} {share(time / step.seconds)}"
        for kind, time in step.bounds.items()
        if time >= least * step.seconds
    ]


def _beyond_line(part: ExplainedPart, software: str) -> str:
    """Return a sentence on a part predicted faster than its roofline: an error of fitting."""
    shares = [
        (done.figure(name), peak_label)
        for done in part.part.done
        for name, peak_label in _PEAKS.items()
        if name in done.work.figures
    ]
    share_of, peak_label = max(shares, default=(0.0, ""))
    excess = f"at {share_of:.3g} of {peak_label} " if share_of > 1 else ""
    return (
        f"{part.title} {excess}exceeds the roofline. The efficiencies of {software} are fitted to "
        "whole steps, so one part may be too fast and another too slow"
    )


def _part_rows(step: ExplainedStep, most: int) -> list[tuple[str, ...]]:
    """Return the longest parts of a step as rows of cells for `_PART_HEADS`."""
    return [
        (
            part.title,
            format_seconds(part.part.seconds),
            f"{100 * part.part.seconds / step.seconds:.1f}",
            part.bound,
            f"{100 * part.roofline_share:.0f} %" if part.part.done else "-",
        )
        for part in step.parts[:most]
    ]


def _work_lines(part: ExplainedPart) -> Iterator[str]:
    """Yield how the time of a part is computed: what it waits for, and each formula."""
    if part.waits:
        yield part.waits
    for done in part.part.done:
        formula = FORMULAS[done.work.formula]
        times = f"{done.times:,.3g}" if done.times < 1000 else f"{done.times:,.0f}"
        yield f"{times} x {format_seconds(done.once)} {formula.title}: {formula.words(done)}"


def _memory_blocks(explained: Explanation) -> Iterator[Block]:
    """Yield the memory of the fullest GPU by part in GiB, and host and paged memory."""
    capacity = explained.plan.source_of(explained.row).usable_memory(explained.row) / GIB
    peak = number_or_nan(explained.row["peak_memory_gib"])
    yield Title(text=f"Memory of the fullest GPU: {peak:,.1f} of {capacity:,.1f} GiB")
    parts = [
        f"{name.replace('_', ' ')} {amount:,.1f} ({share(amount / peak)})"
        for name, amount in explained.memory.items()
        if amount / peak > MIN_SHOWN_CHANGE
    ]
    row = explained.row
    phases = {name: number_or_nan(row.get(name, 0.0)) for name in columns_about("memory_phase")}
    by_phase = sorted(phases.items(), key=lambda item: -item[1])
    parts += [
        f"{name.removesuffix('_memory_gib').replace('_', ' ')} {amount:,.1f}"
        for name, amount in by_phase
        if amount
    ]
    yield make_lines(", ".join(parts))
    plan = explained.plan
    if host_memory := format_host_memory(row, plan.source_of(row).inputs.machine):
        yield make_lines(f"in host memory {host_memory}")
    if paged := format_paged_states(row):
        yield make_lines(f"paged {paged}")


def _assumptions_blocks(explained: Explanation) -> Iterator[Block]:
    """Yield a line for each assumed value with its effect, the largest effect first."""
    if not explained.assumptions:
        return
    yield Title(text="Assumptions, largest effect first")
    for assumption in explained.assumptions:
        yield make_lines(_assumption_text(explained, assumption))


def _assumption_text(explained: Explanation, assumption: RankedAssumption) -> str:
    """Return an assumed value, the values tried, and their effect."""
    facts = {fact.name: fact for fact in explained.predicted.facts}
    others = other_formats(facts[assumption.name]) if assumption.name in facts else []
    values_text = f"tried {assumption.tried}"
    if assumption.assumed:
        values_text = f"assumed {assumption.assumed}; {values_text}"
    effect = format_column_range(assumption.column, assumption.low, assumption.high)
    return "; ".join([f"{assumption.name} ({values_text}): {effect}", *others])


def _sources_blocks(explained: Explanation) -> Iterator[Block]:
    """Yield the spec numbers on which the times depend, their sources, and the formulas."""
    yield Title(text="Sources")
    by_source: dict[str, list[str]] = {}
    for key, source in spec_numbers(explained.steps, SpecSources(explained.plan)).items():
        by_source.setdefault(source or "no source", []).append(key)
    for source, keys in by_source.items():
        yield make_lines(f"{', '.join(keys)}: {source}")
    yield Title(text="Formulas")
    parts = (part.part for step in explained.steps for part in step.parts)
    for name in dict.fromkeys(done.work.formula for part in parts for done in part.done):
        formula = FORMULAS[name]
        cited = f"; {' '.join(formula.references)}" if formula.references else ""
        yield make_lines(f"{formula.title}: {formula.function_path}{cited}")


def sensitivities_blocks(explained: Explanation, *, is_full: bool) -> Iterator[Block]:
    """Yield a table of the effects of 10 % changes and a line per other node count or length."""
    yield Title(text="What if (each one predicted again)")
    yield text_table(
        HEADS, what_if_rows(explained, is_full=is_full), text_columns=(0, 1), name="what_if"
    )
    for line in question_lines(explained, is_full=is_full):
        yield make_lines(line, most=9 if is_full else 2)


def what_if_rows(explained: Explanation, *, is_full: bool) -> Iterator[tuple[str, ...]]:
    """Yield a row of cells for `HEADS` per changed fact and affected result, largest first."""
    base_row, columns = explained.row, explained.columns
    sensitivities = [
        sensitivity
        for sensitivity in explained.sensitivities
        if sensitivity.group not in _QUESTION_FACTS
    ]
    significant = [
        sensitivity
        for sensitivity in sensitivities
        if sensitivity.largest_change(base_row, columns) >= MIN_SHOWN_CHANGE or _fails(sensitivity)
    ]
    significant.sort(
        key=lambda sensitivity: (
            -sensitivity.largest_change(base_row, _sorted_by(explained, sensitivity))
        )
    )
    shown = (
        significant
        if is_full
        else [
            sensitivity
            for sensitivity in significant
            if _fails(sensitivity)
            or sensitivity.largest_change(base_row, _sorted_by(explained, sensitivity))
            >= _MIN_SHOWN_CHANGE
        ][:_FACTS]
    )
    for sensitivity in shown:
        for column in _shown_columns(explained, sensitivity, is_full=is_full):
            rows = [sensitivity.outcomes[option].row for option in _OPTIONS]
            cells = [
                "impossible" if row is None else _change(row, base_row, column) for row in rows
            ]
            yield (sensitivity.name, label(column), *cells)


def question_lines(explained: Explanation, *, is_full: bool) -> Iterator[str]:
    """Lines of other numbers of nodes and other lengths."""
    for sensitivity in explained.sensitivities:
        if sensitivity.group in _QUESTION_FACTS:
            yield from _question_lines(explained, sensitivity, is_full=is_full)


def signed(moved: float) -> str:
    """Return a relative change as text with its sign: ``+4.2 %``.

    >>> signed(0.0421), signed(-0.31), signed(1e-6)
    ('+4.2 %', '-31 %', '0 %')
    """
    if abs(moved) < MIN_SHOWN_CHANGE:
        return "0 %"
    return f"{100 * moved:+.1f} %" if abs(moved) < 0.0995 else f"{100 * moved:+,.0f} %"


def _sorted_by(explained: Explanation, sensitivity: Sensitivity) -> tuple[str, ...]:
    """The shown columns of a change without memory, to sort by."""
    shown_columns = _shown_columns(explained, sensitivity, is_full=False)
    return tuple(name for name in shown_columns if name not in MEMORY)


def _fails(sensitivity: Sensitivity) -> bool:
    return any(outcome.row is None for outcome in sensitivity.outcomes.values())


def _goal(explained: Explanation) -> str:
    """The column of the first objective."""
    goal = explained.plan.problem.objectives[0].name
    return plan_objective_column(explained.plan, goal, explained.row)


def _shown_columns(explained: Explanation, sensitivity: Sensitivity, *, is_full: bool) -> list[str]:
    """Return the results to show for a changed fact: all affected, or only the objective."""
    moved = [
        name
        for name in explained.columns
        if sensitivity.largest_change(explained.row, (name,)) >= MIN_SHOWN_CHANGE
    ]
    goal = _goal(explained)
    if is_full:
        return moved or [goal]
    return [goal] if goal in moved else (moved[:1] or [goal])


def _change(row: Row, base_row: Row, column: str) -> str:
    relative = relative_change(row[column], base_row[column])
    return "-" if relative is None else signed(relative)


def _question_lines(
    explained: Explanation, sensitivity: Sensitivity, *, is_full: bool
) -> Iterator[str]:
    """Yield a line for each other value of an input, such as the GPU, and what that changes."""
    costs = [name for name in explained.columns if "cost" in name]
    memory_columns = MEMORY if sensitivity.group == SOFTWARE else ()
    shown = [*dict.fromkeys((explained.columns[0], _goal(explained), *costs, *memory_columns))]
    impossible: dict[str, list[str]] = {}
    for option, outcome in sensitivity.outcomes.items():
        if outcome.row is None:
            impossible.setdefault(outcome.reason, []).append(option)
    for reason, options in impossible.items():
        yield f"{', '.join(options)}: impossible: {reason}"
    for option, outcome in sensitivity.outcomes.items():
        row = outcome.row
        if row is None:
            continue
        moved = [
            name
            for name in (explained.columns if is_full else shown)
            if abs(relative_change(row[name], explained.row[name]) or 0.0) >= MIN_SHOWN_CHANGE
        ]
        changes = []
        for name in moved:
            share_of = _change(row, explained.row, name)
            value = f"{format_result(name, row[name])} ({share_of})" if is_full else share_of
            changes.append(f"{label(name)} {value}")
        yield f"{option}: {', '.join(changes) or 'no change of these'}"
    if sensitivity.name == "contract" and is_full:
        question_columns = explained.plan.problem.sources[0].question_columns
        rows = {
            option.removeprefix("contract "): {**question_columns, **outcome.row}
            for option, outcome in sensitivity.outcomes.items()
            if outcome.row is not None
        }
        yield from filter(None, [charged_in_full_line(rows)])


def against_lines(difference: Difference, *, is_full: bool = True) -> list[str]:
    """Return sentences on what another plan gains and loses, or the rule that it breaks.

    The short form has the main results only.
    """
    return [*_difference_lines(difference, is_full=is_full)]


def _difference_lines(difference: Difference, *, is_full: bool) -> Iterator[str]:
    """Yield sentences on what another plan changes: settings, results, time and memory.

    An impossible plan has only the reason.
    """
    changes = [
        f"{name.replace('_', ' ')} {_format_setting(other)} instead of {_format_setting(first)}"
        for name, (first, other) in difference.settings.items()
    ]
    yield f"Changed: {', '.join(changes) or 'nothing'}."
    if difference.other.reason:
        yield f"It is impossible: {infeasible_reason(difference.other)}."
        return
    yield from _result_lines(difference, is_full=is_full)
    for name, terms in difference.times.items():
        total = difference.first.steps[name].seconds
        step = "step" if name == "step" else f"{name} step"
        yield from _gain_lines(f"Of the {step}'s time", terms, total, format_seconds)
    total = number_or_nan(difference.first.row[_PEAK])
    yield from _gain_lines("Of the memory", difference.memory, total, lambda gib: f"{gib:,.2f} GiB")


def _result_lines(difference: Difference, *, is_full: bool) -> Iterator[str]:
    """Yield a sentence for each result that the other plan changes, and whether it is a tie."""
    first = {term.name for term in difference.results[:_FIRST]}
    moved = [
        term
        for term in difference.results
        if (is_full or term.name in first or "cost" in term.name or term.name == _PEAK)
        and relative_change(term.other, term.first)  # None where one is unknown
        and format_result(term.name, term.other) != format_result(term.name, term.first)
    ]
    for term in moved:
        relative = relative_change(term.other, term.first) or 0.0
        column_label, glossary_term, verdict = label(term.name), term_of_column(term.name), ""
        if glossary_term is not None and glossary_term.better and term.gain:
            verdict = ", better" if term.gain * glossary_term.sign < 0 else ", worse"
        yield (
            f"{column_label[0].upper()}{column_label[1:]} "
            f"{format_result(term.name, term.other, term.ends[1])} instead of "
            f"{format_result(term.name, term.first, term.ends[0])} "
            f"({100 * relative:+.1f} %{verdict})."
        )
    if moved and difference.is_tie:
        yield f"They are tied: the difference is {tie_text(difference.tie_factor)}."


def _gain_lines(
    total_label: str,
    terms: Sequence[PartDifference],
    total: float,
    format_value: Callable[[float], str],
) -> Iterator[str]:
    """Yield the terms of a total that the other plan makes larger, then the smaller ones."""
    for verb, sign in (("loses", 1), ("gains", -1)):
        significant = [term for term in terms if sign * term.gain > _MIN_TERM_DIFFERENCE * total]
        texts = [
            f"{term.name.replace('_', ' ')} {format_value(abs(term.gain))} "
            f"({_format_or_zero(term.first, format_value)} to "
            f"{_format_or_zero(term.other, format_value)})"
            for term in significant[:_MOST]
        ]
        if texts:
            rest = f" and {len(significant) - _MOST} more" if len(significant) > _MOST else ""
            yield f"{total_label} it {verb} {', '.join(texts)}{rest}."


def _format_or_zero(value: float, format_value: Callable[[float], str]) -> str:
    return format_value(value) if value else "0"


def _terms_blocks(difference: Difference) -> Iterator[Block]:
    """Yield tables that compare every term of time and memory of the two plans."""
    tables = {f"Time of the {name}, ms": (terms, 1e3) for name, terms in difference.times.items()}
    for title, (terms, scale) in {**tables, "Memory, GiB": (difference.memory, 1.0)}.items():
        rows = [
            (
                term.name.replace("_", " "),
                *(f"{scale * value:,.3f}" for value in (term.first, term.other)),
                f"{scale * term.gain:+,.3f}",
            )
            for term in terms
        ]
        yield GAP
        marks = [BAD if term.gain > 0 else "" for term in terms]
        yield text_table((title, "this", "other", "change"), rows, marked=marks)


def _format_setting(value: object) -> str:
    return "none" if value is None else format_parameter(value)


def explain_plan(
    request: Request, burst: int | None = None, against: Request | None = None
) -> Explanation:
    """Return the explanation of a plan and, if there is another request, of the difference.

    Raises SpecError or SearchSpaceError if an input is unknown, faulty or impossible, or there are
    several configurations.
    Raises InfeasibleError if the plan does not fit or breaks a rule; the other one may.
    """
    plan = make_single_plan(request, burst)
    evaluation = evaluate(plan, burst)
    if evaluation.rejected_by:
        raise InfeasibleError(infeasible_message(plan, result_of(plan, evaluation), evaluation))
    other = None if against is None else predict_plan(against, burst)
    return Explanation(plan=plan, evaluation=evaluation, against=other, burst=burst)


def predict_plan(request: Request, burst: int | None = None, name: str = "") -> PredictedPlan:
    """The prediction of the single plan of a request."""
    plan = make_single_plan(request, burst)
    return PredictedPlan(plan=plan, evaluation=evaluate(plan, burst), name=name)


def explanation_dict(explained: Explanation, *, is_open: bool = False) -> JsonObject:
    """Return an explanation as a JSON object, with its first screen and its full report.

    ``is_open``: the plan is the one that a search recommends.
    """
    fields = Explanation.to_dict(explained)
    plan, evaluation = explained.plan, explained.evaluation
    row = first_row(next(result_blocks(plan, evaluation.table())))
    fields["row"] = {name: value_or_none(value) for name, value in row.items()}
    fields["sure"] = plan_evidence(plan, evaluation.candidates)
    if other := explained.difference:
        fields["against"] = {**other.to_dict(), "sentences": against_lines(other)}
    fields["summary"] = summarize_explanation(explained, is_open=is_open)
    fields["details"] = save_blocks(explanation_blocks(explained))
    return fields


def explanation_report(explained: Explanation, *, is_open: bool = False) -> ExplanationReport:
    """Return the report of an explanation; ``is_open``: a search recommends the plan."""
    fields = explanation_dict(explained, is_open=is_open)
    parts = {"manifest": plan_manifest(explained.plan, ()), **fields}
    return made_report(parts, ExplanationReport)


_HEADS = {"num_gpus": "GPUs", "gpu": "GPU", "time_s": "time"}
# Shown in a line above the table if equal in all rows.
_NAMED = ("gpu", "framework")


def operators_blocks(times: OperatorTimes) -> Iterator[Block]:
    """Yield the assumptions, the values equal in all rows, and the table of operator times."""
    if times.assumed:
        yield make_lines(f"Assumed: {'; '.join(times.assumed)}")
    same = []
    for name in (*_NAMED, *_text_columns()):
        values = set(times.columns.get(name, ()))
        if len(values) == 1:
            same.append(str(next(iter(values))))
    if same:
        yield make_lines(", ".join(same))
    yield fit_table(_columns(times), _rank)


def _rank(column: str) -> int:
    """The rank of a column; a narrow terminal omits the largest ranks."""
    term = term_of_column(column)
    return int(term.rank or 1) if term and "result" in term.kind else 1


def add_operators(files: RowFiles, times: OperatorTimes, command: Sequence[str]) -> None:
    """Write the rows of operator times and, in JSON, how each time is computed."""
    files.add(blocks(times.columns))
    if files.has_object:
        works = [[work_dict(done) for done in row] for row in times.works]
        files.finish(command_manifest(command), assumed=list(times.assumed), works=works)
    else:
        files.finish(command_manifest(command))


def _text_columns() -> list[str]:
    return list(dict.fromkeys(name for kind in KINDS.values() for name in kind.choices))


def _columns(times: OperatorTimes) -> list[Column]:
    """Return the columns of a table of operators, without redundant and constant columns."""
    peaks = [*map(number_or_nan, times.columns["of_peak"])]
    return [
        Column(
            name,
            [_cell(name, value) for value in values],
            _HEADS.get(name) or (term.column_header if term else name),
            numeric=not any(isinstance(value, str) for value in values),
        )
        for name, values in times.columns.items()
        for term in [term_of_column(name)]
        if _is_shown(name, values)
        and not (name == "of_roofline" and np.allclose([*map(number_or_nan, values)], peaks))
    ]


def _is_shown(name: str, values: Sequence[object]) -> bool:
    """Whether a column is shown: True if its values vary or are not all the default."""
    if name in (*_NAMED, *_text_columns()):
        return len(set(values)) > 1
    term = glossary().get(name)
    default_values = (
        {None, int(term.default)} if term and "operator" in term.kind and term.default else None
    )
    return not (default_values and set(values) <= default_values) and not (
        name == "num_gpus" and set(values) == {1}
    )


_BY_TYPE: dict[str, Callable[[float], str]] = {
    "second": format_seconds,
    "share": format_percent,
    "byte": lambda value: format_quantity(value, "byte"),
}


def _cell(name: str, value: object) -> str:
    """Return a value of an operator table as text in the unit of its column; "" for None."""
    if value is None:
        return ""
    term = term_of_column(name)
    if term is not None and term.type in _BY_TYPE:
        return _BY_TYPE[term.type](number_or_nan(value))
    if isinstance(value, int):
        return format_count(value)
    return format_significant(value) if isinstance(value, float) else str(value)

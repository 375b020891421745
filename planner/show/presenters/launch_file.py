"""A user's launch file: its settings as understood, and suggested changes."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from planner.base.csv_cells import Row
from planner.base.formatting import format_counted, format_gpus
from planner.base.formatting import format_fit_probability as fits_text
from planner.base.formatting import format_parameter as shown
from planner.decide.explain.largest_fit import largest_length
from planner.decide.fitting import MoreGpus
from planner.decide.near import Change
from planner.decide.suggestions.changes import Attempts
from planner.documents.shell.scope import ONLY_IN_SOME
from planner.launch import MANIFEST
from planner.launch.read.hf_trainer.derive_settings import UNPACKED
from planner.launch.read.import_launch import ImportedLaunch
from planner.launch.read.incomplete import undecided_options
from planner.launch.read.launch_file import LaunchQuestion
from planner.launch.read.option_lines import Line, Status
from planner.launch.read.read_launch import SEVERAL_LAUNCHES
from planner.launch.targets import targets
from planner.launch.write.rewrite_launch import RewriteResult
from planner.launch.write.write_launch import WrittenLaunch
from planner.optimize.result_columns import fit_probability
from planner.question.names import GPU, MODE, MODEL, NUM_GPUS
from planner.question.request import Request
from planner.question.terms import Term, columns_about, glossary, terms_of
from planner.show.output_blocks import (
    GAP,
    TOTAL,
    Block,
    Code,
    KeyValues,
    Title,
    make_lines,
    text_table,
)
from planner.show.presenters.format_results import (
    format_result,
    label,
    share,
)
from planner.show.presenters.plan_report import lost_line
from planner.show.presenters.search import estimate_command
from planner.workloads.make_plan import Plan
from planner.workloads.workload import Evaluation

_NOT_EXPRESSED = " The file cannot express all of it."
_NO_BETTER = "No small change improves the plan."
_NONE_FEASIBLE = "No change of 1 to 3 settings that planner tries makes the plan feasible."
_UNPACKED = UNPACKED.partition("{")[0]
_MAX_IGNORED, _MAX_SETTINGS = 3, 4
_IN_TITLE = (MODEL, GPU, NUM_GPUS, MODE)
_SPEED_COLUMNS = columns_about("speed")
_REQUEST_TIMES = ("time_to_first_token_s", "time_per_output_token_s", "decode_latency_s")


def understood_blocks(imported: ImportedLaunch) -> Iterator[Block]:
    """Yield the settings of a launch file, the assumed defaults and the meaning of each option."""
    target, command = imported.target, imported.command
    tool = f"{target.title} {imported.version}".strip()
    yield make_lines(
        f"{imported.path}, line {command.line}: {tool}, read as {target.version}",
        mark=TOTAL,
        indent="",
    )
    yield make_lines(
        f"  sets {', '.join([text for _, text in _settings(imported)])}", indent="    "
    )
    if imported.assumed:
        yield make_lines(f"  assumes {', '.join(_assumed_settings(imported))}", indent="    ")
    if imported.defaults:
        defaults = (
            f"{name.replace('_', ' ')} ({reason})" for name, reason in imported.defaults.items()
        )
        yield make_lines(f"  takes as default {', '.join(defaults)}", indent="    ")
    for note in imported.notes:
        yield make_lines(f"  {note}")
    rows = [
        (line.place, line.option, line.text, line.meaning or str(line.status))
        for line in imported.lines
    ]
    yield GAP
    yield text_table(("line", "option", "value", "meaning"), rows, text_columns=(1, 2, 3))


def read_lines(imported: ImportedLaunch, notes: Sequence[str]) -> Iterator[str]:
    """Yield how a launch file was read, what may change the result, and the notes, in short."""
    settings = [text for name, text in _settings(imported) if name not in _IN_TITLE]
    tool = f"{imported.target.title} {imported.version}".strip()
    texts = [", ".join([tool, *settings[:_MAX_SETTINGS]])]
    if len(settings) > _MAX_SETTINGS:
        texts[0] += f" and {len(settings) - _MAX_SETTINGS} more"
    if assumed := [f"{_parameter_label(n)} {_format_setting(imported.values[n])}"
                   for n in imported.assumed]:  # fmt: skip
        texts.append(f"assumed: {', '.join(assumed)}")
    if ignored := imported.lines_with_status(Status.IGNORED):
        texts.append(f"ignored: {_format_options(ignored, _MAX_IGNORED)}")
    yield f"Read as: {'; '.join(texts)}."
    if doubts := [*_doubts(imported)]:
        yield f"May change the result: {'; '.join(doubts)}."
    all_notes = sorted(
        [*notes, *imported.notes], key=lambda note: not note.startswith(SEVERAL_LAUNCHES)
    )
    if all_notes:
        more = f" And {len(all_notes) - 1} more (--full)." if len(all_notes) > 1 else ""
        yield f"{all_notes[0]}{more}"


def with_incompleteness(imported: ImportedLaunch, verdict: str) -> str:
    """Return the verdict on a launch file, after the options that may change it and are unread."""
    options = undecided_options(imported)
    if not options:
        return verdict
    rest = f" and {len(options) - _MAX_IGNORED} more" if len(options) > _MAX_IGNORED else ""
    names = ", ".join(map(_short_option, options[:_MAX_IGNORED])) + rest
    return f"Incomplete reading, {names} may change this. {verdict}"


def _short_option(name: str) -> str:
    """Return a key without its sections."""
    return name if " " in name or name.startswith("-") else name.rpartition(".")[2]


def _doubts(imported: ImportedLaunch) -> Iterator[str]:
    """Yield the options of a file that are not understood, not modelled, or depend on a branch."""
    for status, prefix in (
        (Status.UNKNOWN, "not understood: "),
        (Status.NOT_MODELLED, "not modelled: "),
        (Status.OPEN, "not in the file alone: "),
    ):
        if lines := imported.lines_with_status(status):
            yield f"{prefix}{_format_options(lines, _MAX_IGNORED)}"
    for line in imported.lines_with_status(Status.OPEN):
        if ONLY_IN_SOME in line.meaning:
            yield line.meaning.partition(";")[0]


def _assumed_settings(imported: ImportedLaunch) -> list[str]:
    return [
        f"{_parameter_label(name)} {_format_setting(imported.values[name])} ({reason})"
        for name, reason in imported.assumed.items()
    ]


def _settings(imported: ImportedLaunch) -> list[tuple[str, str]]:
    """Return the names and texts of the settings that a launch file sets."""
    values = dict(imported.values)
    if str(values.get("quantization_bits")) == "8":
        values["adapter"] = "8-bit lora"
    return [
        (name, f"{_parameter_label(name)} {_format_setting(values[name])}")
        for name, term in glossary().items()
        if name in imported.values.keys() - imported.assumed.keys()
        and not _is_default(term, imported.values[name])
    ]


def _parameter_label(name: str) -> str:
    return glossary()[name].short or name.replace("_", " ")


def _is_default(term: Term, value: object) -> bool:
    """Whether a parameter has its default value."""
    return "parameter" in term.kind and str(value).lower() == str(term.default_value).lower()


def _format_setting(value: object) -> str:
    text = str(value)
    return text.rpartition("/")[2] if text.endswith(".toml") else shown(value)


def _format_options(lines: list[Line], most: int) -> str:
    names = list(dict.fromkeys(line.option for line in lines))
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


def other_counts_blocks(question: LaunchQuestion) -> Iterator[Block]:
    """Yield results of the same launch file on other GPU counts, if the count is assumed."""
    if not question.other_counts:
        return
    yield Title(text="On other numbers of GPUs")
    for other_count in question.other_counts:
        reached = [
            f"{label(name)} {format_result(name, other_count.row[name])}"
            for name in _SPEED_COLUMNS
            if other_count.row.get(name) is not None and not other_count.rejected_by
        ]
        memory = f"{other_count.row['peak_memory_gib']:,.1f} GiB a GPU"
        fits = "does not fit" if other_count.rejected_by else "fits"
        yield make_lines(
            f"  {other_count.num_gpus:,}: {fits}, {', '.join([memory, *reached])}", indent="    "
        )


def by_hand_blocks(rewritten: RewriteResult) -> Iterator[Block]:
    """Yield the options to change by hand, as the file cannot express the complete change."""
    changes = [
        f"{option} removed" if texts is None else f"{option} {' '.join(map(str, texts))}".strip()
        for option, texts in rewritten.changes.items()
    ]
    for note in (*rewritten.notes, *map(str, rewritten.unexpressed)):
        yield make_lines(note)
    yield make_lines("The file cannot express the whole change: planner does not write it.")
    if changes:
        yield make_lines(f"Options of the target: {', '.join(changes)}.")


def diff_blocks(rewritten: RewriteResult, *, is_written: bool) -> Iterator[Block]:
    """Yield the diff of the user's file, and what the file cannot express."""
    for note in rewritten.notes:
        yield make_lines(note)
    for remark in rewritten.unexpressed:
        yield make_lines(f"The file cannot express this: {remark}")
    for option, texts in rewritten.unwritten.items():
        action = "remove" if texts is None else f"set to {' '.join(map(str, texts)) or 'added'}"
        yield make_lines(f"Change by hand (position in the file unclear): {option}: {action}.")
    if not rewritten.diff:
        return
    yield GAP
    yield Code(text=rewritten.diff.rstrip("\n"))
    if not is_written:
        yield GAP
        yield make_lines("--write makes this change in the file.")


def change_blocks(
    workload: str,
    change: Change | None,
    base_row: Row,
    *,
    is_running: bool,
    attempts: Attempts | None = None,
) -> Iterator[Block]:
    """Yield the best change of a plan, or the failed attempts."""
    yield Title(text="The best change")
    if change is not None:
        yield make_lines(change_text(workload, change, base_row))
    elif attempts is not None:
        yield from attempts_blocks(workload, attempts, base_row)
    elif is_running:
        yield make_lines(_NO_BETTER)
    else:
        yield make_lines(_NONE_FEASIBLE)


def change_lines(
    workload: str,
    change: Change | None,
    base_row: Row,
    *,
    is_running: bool,
    attempts: Attempts | None = None,
    rewritten: RewriteResult | None = None,
    is_complete: bool = False,
) -> Iterator[str]:
    """Yield the best change of a plan in the words of its file, or what fits instead.

    ``rewritten`` is the file with the change; ``is_complete``: it expresses all of it.
    """
    if change is not None:
        if rewritten is not None and is_complete:
            words = f"`{'`, `'.join(_changed_options(rewritten))}`"
        else:
            names = terms_of(workload, "parameter")
            changed = (f"{names[n].term} {shown(new)}" for n, (_, new) in change.changed.items())
            words = ", ".join(changed)
        text = change_text(workload, change, base_row, words)
        yield f"Best change: {text}{_NOT_EXPRESSED if rewritten and not is_complete else ''}"
    elif attempts is not None:
        yield from _attempts_lines(workload, attempts, base_row)
    else:
        yield _NO_BETTER if is_running else _NONE_FEASIBLE


def _changed_options(rewritten: RewriteResult) -> list[str]:
    """Return the options that a change sets or removes, as the file has them."""
    removed = [line for line in rewritten.diff.splitlines() if line.startswith("-")]
    return [
        f"without {option}" if words is None else f"{option} {' '.join(map(str, words))}".strip()
        for option, words in rewritten.changes.items()
        if words is not None or any(option.rpartition(".")[2] in line for line in removed)
    ]


def next_blocks(
    workload: str, change: Change, others: list[Change], base_row: Row
) -> Iterator[Block]:
    """Yield the overheads after a change that makes the plan fit, and the best alternative."""
    if line := lost_line(change.row):
        yield make_lines(line)
    if others:
        best = max(others, key=lambda other: other.value)
        yield make_lines(f"Or {change_text(workload, best, base_row)}")


def attempts_blocks(workload: str, attempts: Attempts, base_row: Row) -> Iterator[Block]:
    """Yield the changes that were tried but do not fit, and larger changes that do."""
    tried = "; ".join(
        f"{name} {', '.join(map(shown, values))}" for name, values in attempts.tried.items()
    )
    if tried:
        yield make_lines(f"Tried: {tried}.")
    for line in _attempts_lines(workload, attempts, base_row):
        yield make_lines(line)
    if attempts.other is not None:
        plan, change = attempts.other
        yield Code(text=estimate_command(plan, change.row))


def _attempts_lines(workload: str, attempts: Attempts, base_row: Row) -> Iterator[str]:
    """Yield what fits where no small change of the file does."""
    if attempts.tried:
        count = format_counted(len(attempts.tried), "setting")
        yield f"Tried {count}, alone and up to three together: none of them fits."
    else:
        yield "No setting that planner tries saves memory here."
    if attempts.other is not None:
        plan, change = attempts.other
        profile = change.row[plan.workload.profile_kind]
        yield f"Another plan fits, as {profile}: {change_text(workload, change, base_row)}"
    elif attempts.tried:
        yield "More of them together do not fit either."
    if attempts.unsaid is not None:
        text = change_text(workload, attempts.unsaid, base_row)
        yield f"The file has no option for this: {text}"
    if attempts.adapter is not None:
        kind, row = attempts.adapter
        yield f"With --adapter {kind} it {fits_text(fit_probability(row))}."
    if attempts.gpus is not None:
        yield from _gpus_lines(workload, attempts.gpus, base_row)


def _gpus_lines(workload: str, gpus: MoreGpus, base_row: Row) -> Iterator[str]:
    """Yield the numbers of GPUs on which a plan fits, or the largest number tried."""
    for count, change in gpus.changes:
        yield f"{format_gpus(count)} fit: {change_text(workload, change, base_row)}"
    if gpus.most and not gpus.changes:
        yield f"No number of these GPUs up to {gpus.most:,} fits."


def change_text(workload: str, change: Change, base_row: Row, words: str = "") -> str:
    """Return a sentence on a change: new and old values, gain, and probability to fit.

    ``words`` are the changed settings in short, without old values. More concurrent requests may
    increase latency, so the latencies are added if they change in the shown digits.
    """
    terms = terms_of(workload, "parameter")
    changes = [
        f"{terms[name].term} {shown(after)} instead of {shown(before)}"
        for name, (before, after) in change.changed.items()
    ]
    gains = []
    if not math.isfinite(change.gain):
        gains = [
            f"{label(name)} {format_result(name, change.row[name])}"
            for name in _SPEED_COLUMNS
            if change.row.get(name) is not None
        ]
    else:
        gains = [f"{share(change.gain)} {'faster' if workload == 'train' else 'more tokens/s'}"]
    for name in _REQUEST_TIMES:
        if base_row.get(name) is not None and change.row.get(name) is not None:
            after = format_result(name, change.row[name])
            before = format_result(name, base_row[name])
            # A plan that does not run has no times.
            has_before = math.isfinite(change.gain) and not words
            instead = f" instead of {before}" if has_before else ""
            gains += [f"{label(name)} {after}{instead}"] if after != before else []
    fits = fits_text(change.fit_probability) if math.isfinite(change.fit_probability) else "fits"
    doubt = "" if change.is_significant else " The gain is within the error of the prediction."
    subject = words or ", ".join(changes) or "unchanged"
    return f"{subject}: {', '.join(gains)}; {fits}.{doubt}"


def translation_text(first_request: Request, other: Request, *rows: Row) -> str:
    """Return a sentence that compares a plan's speed and memory in two tools."""
    texts = []
    for request, row in zip((first_request, other), rows, strict=True):
        profile = request.framework if request.workload == "train" else request.engine
        speeds = [
            f"{label(name)} {format_result(name, row[name])}"
            for name in _SPEED_COLUMNS
            if row.get(name)
        ]
        memory = f"peak memory {row['peak_memory_gib']:,.1f} GiB" if row["peak_memory_gib"] else ""
        texts.append(f"as {profile} {', '.join([*speeds, memory])}")
    changed = [
        f"{name.replace('_', ' ')} {other.settings[name]} instead of {value}"
        for name, value in first_request.settings.items()
        if other.settings.get(name, value) != value
    ]
    dropped = [
        name.replace("_", " ") for name in first_request.settings if name not in other.settings
    ]
    same = f"The same plan but {', '.join(changed)}" if changed else "The same plan"
    same += f" without {', '.join(dropped)}" if dropped else ""
    return f"{same}: {'; '.join(texts)}."


def shorter_lines(imported: ImportedLaunch, plan: Plan, evaluation: Evaluation) -> Iterator[str]:
    """Yield the longest unpacked samples [tokens] that fit where full sequences do not."""
    if not any(note.startswith(_UNPACKED) for note in imported.notes):
        return
    longest = largest_length(plan, evaluation, "sequence_length").largest
    if longest is not None:
        yield f"Samples are not packed: the plan fits if none is longer than {longest:,} tokens."


def launch_blocks(launch: WrittenLaunch, folder: Path) -> Iterator[Block]:
    """Yield the written launch files, what the target tool cannot express, and next commands."""
    target, draft = launch.target, launch.draft
    yield make_lines(f"{target.title} ({target.version})", mark=TOTAL, indent="")
    yield Title(text=f"Written to {folder}")
    pairs = {file.name: file.meaning for file in launch.files}
    manifest = {MANIFEST: "list of written files, so that planner does not overwrite yours"}
    yield KeyValues(pairs=pairs | manifest)
    if draft.unexpressed:
        yield Title(text=f"{target.title} cannot express")
        for remark in draft.unexpressed:
            yield make_lines(f"  {remark}", indent="    ")
    if draft.left:
        yield Title(text="Not of the plan")
        for remark in draft.left:
            yield make_lines(f"  {remark}", indent="    ")
    for note in draft.notes:
        yield GAP
        yield make_lines(note)
    yield Title(text="Then")
    plan = shlex.quote(str(folder / "plan.toml"))
    for line in launch.starts:
        yield make_lines(f"  {line}", indent="    ")
    yield make_lines(f"  planner validate --log LOG --plan {plan}", indent="    ")


def targets_blocks() -> Iterator[Block]:
    """Yield a table of the target tools: name, version, workloads and profiles."""
    rows = [
        (
            target.name,
            target.version,
            ", ".join(target.workloads),
            ", ".join(target.profiles or target.nearest) or "no profile",
        )
        for target in targets().values()
    ]
    yield text_table(
        ("target", "written for", "starts", "predicted as"), rows, text_columns=range(4)
    )

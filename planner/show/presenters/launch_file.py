"""A user's launch file: its settings as understood, and suggested changes."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from planner.base import formatting
from planner.base.csv_cells import Row
from planner.base.formatting import format_fit_probability as fits_text
from planner.base.formatting import format_parameter as shown
from planner.base.formatting import format_probability
from planner.base.units import GIB
from planner.configurations.configuration_tables import OUT_OF_HOST_MEMORY
from planner.decide.explain.largest_fit import largest_length
from planner.decide.fitting import MoreGpus
from planner.decide.near import Change
from planner.decide.suggestions.launch_changes import Attempts
from planner.documents.shell.scope import ONLY_IN_SOME
from planner.estimators.inference.batch_share import ServingInputs
from planner.launch import MANIFEST
from planner.launch.read.hf_trainer.derive_settings import UNPACKED
from planner.launch.read.import_launch import ImportedLaunch
from planner.launch.read.launch_file import LaunchQuestion
from planner.launch.read.option_lines import Line, Status
from planner.launch.targets import targets
from planner.launch.write.rewrite_launch import RewriteResult
from planner.launch.write.write_launch import WrittenLaunch
from planner.optimize.result_columns import fit_probability
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
    format_host_memory,
    format_result,
    label,
    memory_parts,
    share,
    short_plan,
)
from planner.show.presenters.load_check import start_pairs
from planner.show.presenters.question_summary import question_blocks
from planner.show.presenters.search import estimate_command
from planner.show.presenters.uncertainty import format_fit
from planner.workloads.make_plan import Plan
from planner.workloads.workload import Evaluation

_UNPACKED = UNPACKED.partition("{")[0]
_MAX_NAMED = 6
_MIN_SHOWN_SHARE = 0.01
_MAX_PARTS = 3
_SPEED_COLUMNS = columns_about("speed")
_REQUEST_TIMES = ("time_to_first_token_s", "time_per_output_token_s", "decode_latency_s")
_WASTED = {
    "time_recompute_s": "recomputation",
    "time_pipeline_bubble_s": "idle pipeline stages",
    "time_tensor_parallel_s": "tensor-parallel communication",
    "time_context_parallel_s": "context-parallel communication",
    "time_expert_parallel_s": "expert-parallel communication",
    "time_data_parallel_s": "reduction of gradients",
    "time_weight_gather_s": "gathering of weights",
    "time_pipeline_transfer_s": "transfers between stages",
    "time_offload_s": "copies to the host",
    "time_launch_wait_s": "waiting for the host",
}


def understood_blocks(imported: ImportedLaunch, *, is_full: bool) -> Iterator[Block]:
    """Yield the settings of a launch file, the assumed defaults and the ignored options."""
    target, command = imported.target, imported.command
    tool = f"{target.title} {imported.version}".strip()
    yield make_lines(
        f"{imported.path}, line {command.line}: {tool}, read as {target.version}",
        mark=TOTAL,
        indent="",
    )
    yield make_lines(f"  sets {_stated_settings(imported)}", indent="    ")
    if imported.assumed:
        assumed = (
            f"{_parameter_label(name)} {_format_setting(imported.values[name])} ({reason})"
            for name, reason in imported.assumed.items()
        )
        yield make_lines(f"  assumes {', '.join(assumed)}", indent="    ")
    if imported.defaults:
        defaults = (
            f"{name.replace('_', ' ')} ({reason})" for name, reason in imported.defaults.items()
        )
        yield make_lines(f"  takes as default {', '.join(defaults)}", indent="    ")
    for note in imported.notes:
        yield make_lines(f"  {note}")
    if is_full:
        yield from _lines_blocks(imported)
        return
    for status, prefix, suffix in (
        (Status.OPEN, "The file alone does not say ", "."),
        (Status.NOT_MODELLED, "Not modelled, may change the result: ", "."),
        (
            Status.UNKNOWN,
            "Not understood, may change the result: ",
            f" (no options of {target.tool}).",
        ),
    ):
        if lines := imported.lines_with_status(status):
            yield make_lines(f"  {prefix}{_format_options(lines)}{suffix}")
    for line in imported.lines_with_status(Status.OPEN):
        if ONLY_IN_SOME in line.meaning:
            yield make_lines(f"  {line.meaning.partition(';')[0]}.")
    if ignored := imported.lines_with_status(Status.IGNORED):
        is_single = len(ignored) == 1
        yield make_lines(
            f"  {len(ignored)} {'option has' if is_single else 'options have'} no effect on the "
            f"prediction: {_format_options(ignored)}; --full shows each."
        )


def _stated_settings(imported: ImportedLaunch) -> str:
    """Return the parameters and inputs that a launch file sets, in the order of the terms."""
    values = dict(imported.values)
    if str(values.get("quantization_bits")) == "8":
        values["adapter"] = "8-bit lora"
    texts = [
        f"{_parameter_label(name)} {_format_setting(values[name])}"
        for name, term in glossary().items()
        if name in imported.values.keys() - imported.assumed.keys()
        and not _is_default(term, imported.values[name])
    ]
    return ", ".join(texts)


def _parameter_label(name: str) -> str:
    return glossary()[name].short or name.replace("_", " ")


def _is_default(term: Term, value: object) -> bool:
    """Whether a parameter has its default value."""
    return "parameter" in term.kind and str(value).lower() == str(term.default_value).lower()


def _format_setting(value: object) -> str:
    text = str(value)
    return text.rpartition("/")[2] if text.endswith(".toml") else shown(value)


def _format_options(lines: list[Line]) -> str:
    names = list(dict.fromkeys(line.option for line in lines))
    rest = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return ", ".join(names[:_MAX_NAMED]) + rest


def _lines_blocks(imported: ImportedLaunch) -> Iterator[Block]:
    """Yield a table of the options in a launch file: line, option, value and meaning."""
    rows = [
        (str(line.line), line.option, line.text, line.meaning or str(line.status))
        for line in imported.lines
    ]
    yield GAP
    yield text_table(("line", "option", "value", "meaning"), rows, text_columns=(1, 2, 3))


def misfit_blocks(plan: Plan, row: Mapping[str, Any]) -> Iterator[Block]:
    """Yield the GPU and host memory that a configuration needs, and what is available."""
    needs, gpu = row["peak_memory_gib"], plan.problem.inputs.machine.gpu
    has = gpu.allocatable_memory / GIB
    parts = sorted(memory_parts(row).items(), key=lambda part: -part[1])[:_MAX_PARTS]
    shares = ", ".join(f"{name.replace('_', ' ')} {share(size / needs)}" for name, size in parts)
    yield from question_blocks(plan)
    yield make_lines(short_plan(plan, row), mark=TOTAL, indent="")
    likelihood = f" ({fit_text})" if (fit_text := format_fit(row)) else ""
    phase = f", in the phase {row['fullest_phase']}" if row.get("fullest_phase") else ""
    breakdown = f": {shares}" if shares else phase
    peak = f"peak {needs:,.1f} GiB on the fullest GPU, {has:,.1f} usable{likelihood}{breakdown}"
    host_memory = format_host_memory(row, plan.problem.inputs.machine)
    texts = [peak, f"host memory {host_memory}"] if host_memory else [peak]
    if row["rejected_by"] == OUT_OF_HOST_MEMORY.name:
        texts.reverse()
    yield make_lines(f"Does not fit: {'; '.join(texts)}.")


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


def wasted_blocks(row: Mapping[str, Any]) -> Iterator[Block]:
    """Yield a line with the shares of the step time lost to overheads, the largest first."""
    step = row.get("step_time_s")
    if not step:
        return
    parts = {name: row.get(name) or 0.0 for name in _WASTED}
    lost = sorted(((time / step, name) for name, time in parts.items()), reverse=True)
    texts = [f"{_WASTED[name]} {share(part)}" for part, name in lost if part >= _MIN_SHOWN_SHARE]
    if texts:
        yield make_lines(f"Lost in each step: {', '.join(texts)}.")


def started_blocks(plan: Plan, row: Row) -> Iterator[Block]:
    """Yield the values that the engine's log shows at start; nothing for training."""
    inputs = plan.source_of(row).inputs
    pairs = {}
    if isinstance(inputs, ServingInputs):
        pairs = start_pairs(row, shortens=inputs.engine.memory.shortens_longest)
    if pairs:
        text = ", ".join(f"{name} {value}" for name, value in pairs.items())
        yield make_lines(f"At start the engine logs: {text}.")


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
    fits: float,
    attempts: Attempts | None = None,
) -> Iterator[Block]:
    """Yield the probability that a plan fits, and its best change or the failed attempts."""
    yield Title(text="The best change")
    if is_running and math.isfinite(fits):
        yield make_lines(f"Unchanged: {fits_text(fits)}.")
    if change is not None:
        yield make_lines(change_text(workload, change, base_row))
    elif attempts is not None:
        yield from attempts_blocks(workload, attempts, base_row)
    elif is_running:
        yield make_lines("No small change improves the plan.")
    else:
        yield make_lines("No change of 1 to 3 settings that planner tries makes the plan feasible.")


def next_blocks(
    workload: str, change: Change, others: list[Change], base_row: Row
) -> Iterator[Block]:
    """Yield the overheads after a change that makes the plan fit, and the best alternative."""
    yield from wasted_blocks(change.row)
    if others:
        best = max(others, key=lambda other: other.value)
        yield make_lines(f"Or {change_text(workload, best, base_row)}")


def attempts_blocks(workload: str, attempts: Attempts, base_row: Row) -> Iterator[Block]:
    """Yield the changes that were tried but do not fit, and larger changes that do."""
    tried = "; ".join(
        f"{name} {', '.join(map(shown, values))}" for name, values in attempts.tried.items()
    )
    if tried:
        yield make_lines(f"Tried, alone and up to three together: {tried}. None of them fits.")
    else:
        yield make_lines("No setting that planner tries saves memory here.")
    if attempts.other is not None:
        plan, change = attempts.other
        profile = change.row[plan.workload.profile_kind]
        yield make_lines(
            f"Another plan fits, as {profile}: {change_text(workload, change, base_row)}"
        )
        yield Code(text=estimate_command(plan, change.row))
    else:
        yield make_lines("More of them together do not fit either.")
    if attempts.unsaid is not None:
        text = change_text(workload, attempts.unsaid, base_row)
        yield make_lines(f"The file has no option for this: {text}")
    if attempts.adapter is not None:
        kind, row = attempts.adapter
        yield make_lines(
            f"With --adapter {kind} it fits, {format_probability(fit_probability(row))} likely."
        )
    if attempts.gpus is not None:
        yield from gpus_blocks(workload, attempts.gpus, base_row)


def gpus_blocks(workload: str, gpus: MoreGpus, base_row: Row) -> Iterator[Block]:
    """Yield the numbers of GPUs on which a plan fits, or the largest number tried."""
    for count, change in gpus.changes:
        yield make_lines(
            f"{formatting.format_gpus(count)} fit: {change_text(workload, change, base_row)}"
        )
    if gpus.most and not gpus.changes:
        yield make_lines(f"No number of these GPUs up to {gpus.most:,} fits.")


def change_text(workload: str, change: Change, base_row: Row) -> str:
    """Return a sentence on a change: new and old values, gain, and probability to fit.

    More concurrent requests may increase latency, so the latencies are added if they change in the
    shown digits.
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
            after, before = (
                format_result(name, change.row[name]),
                format_result(name, base_row[name]),
            )
            # A plan that does not run has no times.
            instead = f" instead of {before}" if math.isfinite(change.gain) else ""
            gains += [f"{label(name)} {after}{instead}"] if after != before else []
    fits = fits_text(change.fit_probability) if math.isfinite(change.fit_probability) else "fits"
    doubt = "" if change.is_significant else " The gain is within the error of the prediction."
    return f"{', '.join(changes) or 'unchanged'}: {', '.join(gains)}; {fits}.{doubt}"


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


def shorter_blocks(imported: ImportedLaunch, plan: Plan, evaluation: Evaluation) -> Iterator[Block]:
    """Yield the longest unpacked samples [tokens] that fit where full sequences do not."""
    if not any(note.startswith(_UNPACKED) for note in imported.notes):
        return
    longest = largest_length(plan, evaluation, "sequence_length").largest
    if longest is not None:
        yield make_lines(
            f"Samples are not packed: the plan fits if none is longer than {longest:,} tokens."
        )


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

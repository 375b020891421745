"""Measurements of a log compared with the predictions of its plan."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from planner.base.csv_cells import Row, Value
from planner.base.enums import LinkKind
from planner.base.records import record
from planner.base.software_enums import Placement
from planner.base.units import UNITS
from planner.errors import LaunchError
from planner.logs.log_reader import (
    OUT_OF_MEMORY,
    SAMPLES,
    STEP_TIME,
    TOKENS,
    LoggedStep,
    LogSummary,
    SteadyValue,
    steady_state,
)
from planner.logs.training_logs import LOGPROBS, REFIT
from planner.question.terms import terms_about, terms_of
from planner.validation.accuracy import KINDS, predict, ranges
from planner.validation.inference.cases import Mode
from planner.validation.logs.predicted_run import STATIC, TRAIN, PredictedRun
from planner.validation.run_tables import (
    INFERENCE,
    MEMORY,
    RATES,
    RL,
    TRAINING,
    ColumnType,
    Range,
    Run,
    Runs,
    Schema,
    is_path,
)
from planner.validation.spec_library import Library

_GIGABIT = UNITS["byte/s"]["Gbit/s"]
_GIGABYTE = UNITS["byte"]["GB"]
# Words of the columns for weights, activations and products, by quantization.
_WORDS: Mapping[str, tuple[str, str, str]] = {
    "w16a16": ("bf16", "bf16", ""),
    "w8a8": ("int8", "int8", ""),
    "w8a16": ("int8", "bf16", ""),
    "w4a16": ("int4", "bf16", ""),
    "w4a8": ("int4", "int8", ""),
    "w4a4": ("int4", "int4", ""),
    "fp8": ("fp8", "fp8", ""),
    "fp8_block": ("fp8", "fp8", "fp8_block"),
    "nvfp4": ("fp4", "fp4", ""),
    "mxfp4": ("mxfp4", "bf16", "mxfp4"),
}
_OFFLOADED: Mapping[tuple[object, object], str] = {
    (0.0, 0.0): "none",
    (1.0, 0.0): "weights",
    (0.0, 1.0): "kv_cache",
    (1.0, 1.0): "weights+kv_cache",
}
_VARIATIONS = terms_about("length_variation")
Cells = dict[str, str]


def schema_for(planned: PredictedRun) -> Schema:
    """Return the columns of the table (training, inference or RL) to which the run belongs."""
    if planned.is_of_rollouts:
        return RL
    return TRAINING if planned.is_training else INFERENCE


def run_cells(
    planned: PredictedRun, reading: LogSummary, measured: Mapping[str, float], name: str
) -> Cells:
    """Return the cells of a run by column; LaunchError if the plan's model or GPU is a file."""
    if planned.is_of_rollouts:
        base_cells = _steps(planned, reading)
    else:
        base_cells = _training(planned) if planned.is_training else _serving(planned, reading)
    cells = dict(
        base_cells,
        id=name,
        source="own measurement",
        **_machine(planned),
        notes=f"read of a log of {reading.title}",
    )
    cells["model"] = _named(planned, "model")
    cells["gpu"] = _named(planned, "gpu")
    formatted = {column: _text(value) for column, value in cells.items()}
    formatted |= {f"measured_{column}": f"{value:.6g}" for column, value in measured.items()}
    columns = schema_for(planned).columns
    return {column: cell for column, cell in formatted.items() if cell and column in columns}


def unrecorded_parts(planned: PredictedRun) -> Iterator[str]:
    """Yield what the table of published runs has no column for; a row would lose these parts."""
    row = planned.row
    if planned.is_training:
        return
    if (row.get("weight_offload"), row.get("kv_offload")) not in _OFFLOADED:
        yield "which share of weights and cache is offloaded"
    if row.get("prefill_gpu") and row["quantization"] != row["prefill_quantization"]:
        yield "that prefill and decode workers have different quantizations"
    if row.get("prefill_gpu") and row["gpu"] != row["prefill_gpu"]:
        yield "that prefill workers have another GPU"


def _named(planned: PredictedRun, question: str) -> str:
    """Return the GPU, model, ... of the plan by its catalogue name; LaunchError if it is a file."""
    answer = str(planned.row["gpu"] if question == "gpu" else planned.pinned.answers[question])
    if is_path(answer, slashes=question == "model"):
        raise LaunchError(
            f"A table of runs names specs, not files. Put {answer} into a folder of --specs, "
            f"make the plan with its name there, and give --specs here too."
        )
    return answer


def _training(planned: PredictedRun) -> Mapping[str, object]:
    """Return the cells of a table of training runs for a plan: layout, lengths, adapter (LoRA)."""
    row, work = planned.row, planned.inputs.workload
    adapter = row.get("adapter", "none")
    return {
        **{name: row[name] for name in terms_about("logged")},
        **{name: getattr(work, name) for name in terms_about("length", "train")},
        "workload": "pretrain" if adapter == "none" else adapter,
        "lora_rank": "" if adapter == "none" else work.lora_rank,
        "mtp_num_layers": planned.model.mtp_num_layers or "",
        **_parameters(planned),
    }


def _steps(planned: PredictedRun, reading: LogSummary) -> Mapping[str, object]:
    """Return the cells of an RL run; lengths [tokens] come from the log if it has them."""
    row, work = planned.row, planned.inputs.workload
    logged_lengths = {
        name: reading.facts[name] for name in terms_about("length", "rl") if name in reading.facts
    }
    answers = {
        name: getattr(work, name)
        for name, column in RL.columns.items()
        if getattr(work, name, None) or (hasattr(work, name) and column.type is ColumnType.FLAG)
    }
    rollouts = {
        "engine": row.get("engine") or planned.inputs.rollouts.engine,
        "train_gpus": "" if row["placement"] == Placement.COLOCATED.word else row["train_gpus"],
    }
    return {
        **_parameters(planned),
        **answers,
        **{name: round(value) for name, value in logged_lengths.items() if value},
        **rollouts,
        "framework": planned.inputs.framework.name,
        "algorithm": str(work.algorithm),
    }


def _parameters(planned: PredictedRun) -> dict[str, object]:
    """Return the plan's parameters that have a column in the table, without counts of 0."""
    columns = schema_for(planned).columns
    return {
        name: planned.row[name]
        for name in terms_of(planned.pinned.workload, "parameter")
        if name in columns and (planned.row[name] or columns[name].type is not ColumnType.COUNT)
    }


def _serving(planned: PredictedRun, reading: LogSummary) -> Mapping[str, object]:
    """Return the cells of a serving run: engine, layout, formats, lengths and load."""
    row, work = planned.row, planned.inputs.workload
    return {
        "framework": row["engine"],
        **_parameters(planned),
        **_workers(planned, reading),
        **_formats(row),
        **{
            name: round(float(reading.facts.get(name, getattr(work, name))), 1)
            for name in terms_about("length", "serve")
        },
        **_spread(reading, work),
        **{name: getattr(work, name, None) or "" for name in terms_about("request_sharing")},
        "acceptance_rate": work.acceptance_rate if getattr(work, "draft_tokens", 0) else "",
        **_load(planned, reading),
    }


def _formats(row: Row) -> dict[str, object]:
    """Return the columns with the number formats of weights, products and cache, and offload."""
    experts = "mxfp4" if row["expert_quantization"] == "mxfp4" else str(row["quantization"])
    weights, activations, products = _WORDS[experts]
    return {
        "offload": _OFFLOADED.get((row.get("weight_offload"), row.get("kv_offload")), ""),
        "weight_precision": weights,
        "activation_precision": activations,
        "gemm_precision": products,
        "kv_cache_precision": row["kv_cache"],
    }


def _spread(reading: LogSummary, work: object) -> dict[str, object]:
    """Return the columns with the variation of lengths: from the log, or else from the plan."""
    variations: dict[str, object] = {
        name: round(reading.facts.get(name, getattr(work, name)), 4) or "" for name in _VARIATIONS
    }
    if reading.facts.get("equal_lengths", getattr(work, "equal_lengths", False)):
        return {"equal_lengths": 1, **dict.fromkeys(_VARIATIONS, "")}
    return variations


def _load(planned: PredictedRun, reading: LogSummary) -> dict[str, object]:
    """Return the columns with concurrency and request rate [1/s]: from the log, else the plan."""
    facts = reading.facts
    load: dict[str, object] = {
        name: facts[name] for name in ("concurrency", "request_rate") if name in facts
    }
    if not load and "all_at_once" not in facts:
        load = {"concurrency": planned_concurrency(planned)}
    ranks = int(planned.row["attention_data_parallel"])
    slots = math.ceil(float(planned.row["concurrency"]) / ranks)
    scheduler = {} if planned.pinned.workload == STATIC else {"max_num_seqs": slots}
    return {"concurrency": "", **load, **scheduler, "num_requests": facts.get("num_requests", "")}


def planned_concurrency(planned: PredictedRun) -> float:
    """Concurrency of the plan on all its replicas."""
    return float(planned.row["concurrency"]) * float(planned.row.get("replicas") or 1)


def _workers(planned: PredictedRun, reading: LogSummary) -> dict[str, object]:
    """Return the columns with the serving mode and with separate prefill and decode workers."""
    row, columns = planned.row, INFERENCE.columns
    if planned.pinned.workload == STATIC:
        return {"mode": Mode.STATIC}
    if row.get("prefill_gpu") is None:
        return {"mode": Mode.MAX_THROUGHPUT if "all_at_once" in reading.facts else Mode.ONLINE}
    values = {name: value for name, value in row.items() if name in columns and value is not None}
    return {
        "mode": Mode.DISAGGREGATED,
        "prefill_num_workers": row["prefill_replicas"],
        "decode_num_workers": row["replicas"],
        **{name: value for name, value in values.items() if name.startswith("prefill_")},
        **{
            f"decode_{name}": value for name, value in values.items() if f"decode_{name}" in columns
        },
    }


def _machine(planned: PredictedRun) -> dict[str, object]:
    """Return the columns with the size of a node, its links and, with several nodes, network."""
    cluster, row = planned.inputs.machine.cluster, planned.row
    cells: dict[str, object] = {"gpus_per_node": cluster.gpus_per_node}
    if cluster.scale_up.kind is LinkKind.PCIE:
        cells["scale_up_link"] = "pcie"
    if row["num_gpus"] > cluster.gpus_per_node:
        cells["scale_out_gbit_per_s"] = cluster.scale_out.bandwidth / _GIGABIT
        cells["scale_out_per_gpu"] = 1
        cells["nics_per_node"] = max(cluster.gpus_per_node // cluster.scale_out.gpus_per_nic, 1)
    if row.get("host_memory_gib") and cluster.host_memory:
        cells["host_memory_gb"] = cluster.host_memory / _GIGABYTE
    return cells


def _text(value: object) -> str:
    """Format the value of a cell; True and False become 1 and 0."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, int | float):
        return f"{value:.10g}"
    return str(value)


# Relative difference up to which numbers of the log are those of the plan.
_SAME = 0.02
_SAME_LENGTH = 0.05
# Relative difference between the predictions for row and plan from which a note says so.
_UNLIKE = 0.02
_PREFERRED = ("allocated", "reserved", "device")


@record(kw_only=True)
class LoggedQuantity:
    """A measured quantity and its prediction, in the unit of its column.

    Parameters
    ----------
    name : column of the quantity
    measured : measured value
    predicted : prediction with its 90 % interval, NaN if unknown; None: not predicted
    spread : range of 80 % of the steps; None: unknown
    percent : percentile of the quantity; None: no percentile
    kind : kind of memory that the log measures, such as ``allocated``
    """

    name: str
    measured: float
    predicted: Range | None
    spread: tuple[float, float] | None = None
    percent: int | None = None
    kind: str = ""

    @property
    def error(self) -> float | None:
        """Predicted over measured, less 1."""
        if self.predicted is None or not self.measured:
            return None
        return self.predicted.value / self.measured - 1

    @property
    def is_inside(self) -> bool | None:
        """Return True if the measured value is in the 90 % interval; None: either is unknown."""
        ends = self.predicted
        if ends is None or math.isnan(ends.low) or math.isnan(ends.high):
            return None
        return ends.low <= self.measured <= ends.high


@record(kw_only=True)
class Comparison:
    """A log compared with the prediction of its plan.

    Parameters
    ----------
    reading : log as read
    quantities : measured quantities with their predictions
    notes : sentences that qualify the comparison
    cells, no_row : row of the run for a table of runs, or why it has none
    """

    reading: LogSummary
    quantities: tuple[LoggedQuantity, ...]
    notes: tuple[str, ...]
    cells: Cells
    no_row: str = ""


def compare(reading: LogSummary, planned: PredictedRun, name: str) -> Comparison:
    """Compare a log with its plan; raises LaunchError if GPUs, batch or lengths differ."""
    is_of_rollouts = reading.on_rollouts
    trains = planned.is_training or planned.is_of_rollouts
    if reading.is_training not in (None, trains) or is_of_rollouts != planned.is_of_rollouts:
        log_kind = "training" if reading.is_training else "serving"
        log_kind = "reinforcement learning" if is_of_rollouts else log_kind
        raise LaunchError(
            f"The log is from {log_kind} ({reading.title}), the plan is for "
            f"{planned.pinned.workload}: give the plan that was launched."
        )
    _require_same_run(reading, planned)
    if planned.is_of_rollouts:
        return _of_rollouts(reading, planned, name)
    if planned.is_training:
        return _of_training(reading, planned, name)
    return _of_serving(reading, planned, name)


def _require_same_run(reading: LogSummary, planned: PredictedRun) -> None:
    """Raise LaunchError if the model, sizes or lengths of the log differ from those of the plan."""
    differences = [
        *planned.model_differences(reading.model),
        *(
            f"{column.replace('_', ' ')}: {logged:g} in the log, {expected:g} in the plan"
            for column, logged, expected, within in _facts(reading, planned)
            if expected and abs(logged / expected - 1) > within
        ),
    ]
    if differences:
        raise LaunchError(
            "The log is not of this plan: " + "; ".join(differences) + ". A comparison would blame "
            "the prediction for it: give the plan that was launched."
        )


def _facts(reading: LogSummary, planned: PredictedRun) -> Iterator[tuple[str, float, float, float]]:
    """Yield name, value in the log, value in the plan and largest allowed relative difference."""
    row, work, facts = planned.row, planned.inputs.workload, reading.facts
    if not planned.is_training:
        for name in ("input_tokens", "output_tokens"):
            if name in facts:
                yield name, facts[name], getattr(work, name), _SAME_LENGTH
        for name in ("tensor_parallel", "pipeline_parallel"):
            if name in facts:
                yield name, facts[name], row[name], 0.0
        return
    tokens = row["global_batch_size"] * work.sequence_length
    expected = {
        **{name: row[name] for name in terms_of(TRAIN, "parameter")},
        "sequence_length": work.sequence_length,
        "num_hidden_layers": planned.model.num_hidden_layers - planned.model.mtp_num_layers,
        "hidden_size": planned.model.hidden_size,
        "tokens_per_step": tokens,
        "tokens_per_gpu_and_step": tokens / row["num_gpus"],
    }
    for name, value in expected.items():
        if name in facts:
            within = facts.get(f"{name}_within", 0.0)
            yield name, facts[name], value, max(within, _SAME if "token" in name else 0.0)


def _of_training(reading: LogSummary, planned: PredictedRun, name: str) -> Comparison:
    """Compare the step time [s], rate and memory [GiB] of a training log with its plan."""
    step_time, notes = _step_time(reading, planned)
    quantities = []
    measured = {}
    if step_time is not None:
        tokens = planned.row["global_batch_size"] * planned.inputs.workload.sequence_length
        per_gpu = tokens / planned.row["num_gpus"]
        for column, step in ((STEP_TIME, step_time), (TOKENS, _turned(step_time, per_gpu))):
            quantities.append(
                LoggedQuantity(
                    name=column,
                    measured=step.value,
                    predicted=planned.ranges.get(column),
                    spread=(step.low, step.high) if step.lines > 1 else None,
                )
            )
        measured[STEP_TIME] = step_time.value
    if OUT_OF_MEMORY in reading.values:
        measured[OUT_OF_MEMORY] = 1.0
        quantities.append(
            LoggedQuantity(name=OUT_OF_MEMORY, measured=1.0, predicted=planned.out_of_memory)
        )
    for kind, value in reading.memory.items():
        quantities.append(
            LoggedQuantity(name=MEMORY, measured=value, predicted=planned.memory(kind), kind=kind)
        )
    kind = next((kind for kind in _PREFERRED if kind in reading.memory), "")
    if kind:
        measured[MEMORY] = reading.memory[kind]
    cells, no_row = _cells(reading, planned, measured, name)
    if cells and kind:
        cells["memory_kind"] = kind
    notes = (*notes, *_about_row(cells, planned, quantities))
    return Comparison(
        reading=reading,
        quantities=tuple(quantities),
        notes=(*reading.notes, *notes),
        cells=cells,
        no_row=no_row,
    )


def _of_rollouts(reading: LogSummary, planned: PredictedRun, name: str) -> Comparison:
    """Compare the times of an RL step and its phases [s] in a log with their predictions."""
    step_time, notes = _step_time(reading, planned)
    measured = {} if step_time is None else {STEP_TIME: step_time.value}
    logged_parts = {part for phase in reading.phases for part in _SUMS.get(phase, (phase,))}
    quantities = []
    for column, value in {**measured, **reading.phases}.items():
        predicted = planned.ranges.get(column)
        names = _SUMS.get(column, (column,))
        if column == _GENERATE:
            names = (column, *(part for part in _IN_GENERATE if part not in logged_parts))
        if predicted is None and all(planned.row.get(part) is not None for part in names):
            total = sum(float(planned.row[part]) for part in names)
            predicted = Range(value=total, low=math.nan, high=math.nan)
        quantities.append(LoggedQuantity(name=column, measured=value, predicted=predicted))
    has_separate_gpus = planned.row["placement"] != Placement.COLOCATED.word
    is_switch_in_generate = _GENERATE in reading.phases and not logged_parts >= {*_IN_GENERATE}
    switched = (_SWITCHED,) if is_switch_in_generate else ()
    row_values = dict(measured)
    for column, names in _OF_COLUMNS.items():
        parts = [reading.phases[part] for part in names if part in reading.phases]
        is_comparable = column != "generate_s" or not is_switch_in_generate or has_separate_gpus
        if parts and is_comparable:
            row_values[column] = sum(parts)
    cells, no_row = _cells(reading, planned, row_values, name)
    return Comparison(
        reading=reading,
        quantities=tuple(quantities),
        notes=(*reading.notes, *notes, *switched, *_about_row(cells, planned, quantities)),
        cells=cells,
        no_row=no_row,
    )


_GENERATE = "time_generate_s"
_OF_COLUMNS = {
    "generate_s": (_GENERATE,),
    "logprob_s": ("time_old_logprob_s", "time_reference_s", LOGPROBS),
    "update_s": ("time_update_s",),
    "sync_s": ("time_sync_s",),
}
_IN_GENERATE = ("time_switch_s", "time_sync_s")
_SUMS = {LOGPROBS: ("time_old_logprob_s", "time_reference_s", "time_values_s"), REFIT: _IN_GENERATE}
_SWITCHED = (
    "generation includes two times without a line in the log: the switch of colocated sides, and "
    "the transfer of weights"
)


def _step_time(
    reading: LogSummary, planned: PredictedRun
) -> tuple[SteadyValue | None, tuple[str, ...]]:
    """Return the median step time after warm-up [s], None: not in the log; and notes on it."""
    batch = planned.row["global_batch_size"]
    if not reading.steps:
        seconds = reading.values.get(STEP_TIME)
        if SAMPLES in reading.values:
            seconds = batch / reading.values[SAMPLES]
        if seconds is None:
            return None, ()
        return SteadyValue(value=seconds, low=seconds, high=seconds, lines=1, warmup=0), ()
    steps = _of_generations(reading.steps, planned) if reading.per_update else reading.steps
    steady = steady_state(steps, reading.quantity)
    if reading.steps[-1].batch not in (0, batch):
        raise LaunchError(
            f"The log is not of this plan: its last global batch size is "
            f"{reading.steps[-1].batch}, the plan's is {batch:g}."
        )
    about = (
        f"steady state: the median of {steady.lines} lines, the first {steady.warmup} left out",
        *steady.notes,
    )
    if reading.quantity == STEP_TIME:
        return steady, about
    tokens = batch * planned.inputs.workload.sequence_length / planned.row["num_gpus"]
    return _turned(steady, tokens if reading.quantity == TOKENS else batch), about


def _of_generations(steps: Sequence[LoggedStep], planned: PredictedRun) -> Sequence[LoggedStep]:
    """Sum the optimizer steps of a log to RL steps of the plan [s]; drops an incomplete last."""
    passes = float(planned.row["samples_per_step"]) * planned.inputs.workload.update_epochs
    updates = max(round(passes / planned.row["global_batch_size"]), 1)
    if updates > len(steps):
        raise LaunchError(
            f"The log has {len(steps)} optimizer steps, but one step of the plan has {updates}: "
            "give a longer log."
        )
    starts = range(0, len(steps) - updates + 1, updates)
    return [
        replace(steps[at], number=number, value=sum(s.value for s in steps[at : at + updates]))
        for number, at in enumerate(starts, start=1)
    ]


def _turned(steady: SteadyValue, amount: float) -> SteadyValue:
    """A rate as the time of an amount, or a time as a rate."""
    return replace(
        steady, value=amount / steady.value, low=amount / steady.high, high=amount / steady.low
    )


def _of_serving(reading: LogSummary, planned: PredictedRun, name: str) -> Comparison:
    """Compare the rates and latencies of a serving log with those of its plan at this load."""
    cells, no_row = _cells(reading, planned, reading.values, name)
    missing = list(unrecorded_parts(planned))
    at_load = _at_load(reading, planned)
    predicted = (at_load or planned).ranges
    notes = list(reading.notes)
    if cells and not missing:
        of_row, about = _of_row(cells, planned)
        predicted = of_row or predicted
        notes += about
    if missing:
        cells, no_row = {}, f"no column of runs has {' and '.join(missing)}"
    quantities = [
        LoggedQuantity(
            name=column,
            measured=value,
            predicted=predicted.get(column) or predicted.get(_OF_PLANS.get(column, "")),
        )
        for column, value in reading.values.items()
    ]
    quantities += [
        LoggedQuantity(
            name=column,
            measured=value,
            predicted=_percentile(at_load, column, percent),
            percent=percent,
        )
        for (column, percent), value in reading.percentiles.items()
    ]
    return Comparison(
        reading=reading,
        quantities=tuple(quantities),
        notes=(*notes, *_about_load(reading, planned)),
        cells=cells,
        no_row=no_row,
    )


def _at_load(reading: LogSummary, planned: PredictedRun) -> PredictedRun | None:
    """Predict the plan's deployment under the load of the log; None if that is impossible."""
    facts = reading.facts
    if "all_at_once" in facts:
        return None
    load = facts.get("concurrency"), facts.get("request_rate")
    if not any(load):
        return planned
    answers: dict[str, Value] = {}
    varied = {name: facts[name] for name in _VARIATIONS if name in facts}
    if planned.pinned.workload != STATIC and (varied or "equal_lengths" in facts):
        answers = {"equal_lengths": True} if facts.get("equal_lengths") else {**varied}
        if load[0] and "num_requests" in facts:
            answers["num_requests"] = round(facts["num_requests"])
    return planned.at_load(*load, answers) or planned.at_load(*load)


_OF_PLANS = {
    "total_tokens_per_s": "tokens_per_s",
    "time_to_first_token_s": "prefill_latency_s",
    "time_per_output_token_s": "decode_latency_s",
}


def _percentile(planned: PredictedRun | None, column: str, percent: int) -> Range | None:
    name = f"{column.removesuffix('_s')}_p{percent}_s"
    value = None if planned is None else planned.row.get(name)
    return None if value is None else Range(value=float(value), low=math.nan, high=math.nan)


def _about_load(reading: LogSummary, planned: PredictedRun) -> Iterator[str]:
    """Yield notes on the load for which the prediction holds, if it is not that of the log."""
    facts = reading.facts
    if planned.pinned.workload == TRAIN or "replicas" not in planned.row:
        return
    planned_load = planned_concurrency(planned)
    if "concurrency" in facts and round(facts["concurrency"]) != round(planned_load):
        yield (
            f"the log has {facts['concurrency']:g} requests at once, the plan {planned_load:g}: "
            "the prediction is for the plan's deployment under the load of the log"
        )
    elif "concurrency" in facts:
        return
    elif "request_rate" in facts:
        yield (
            f"requests came at {facts['request_rate']:g} per second: the prediction is for the "
            "plan's deployment at that rate"
        )
    elif "all_at_once" in facts:
        yield "all requests were sent at the start: the prediction is the time until all are done"
    else:
        yield (
            f"the log does not specify its load: planner assumes the {planned_load:g} requests at "
            "once of the plan"
        )


def _cells(
    reading: LogSummary, planned: PredictedRun, measured: Mapping[str, float], name: str
) -> tuple[Cells, str]:
    """Return the cells of the run and no reason, or no cells and the reason."""
    try:
        return run_cells(planned, reading, measured, name), ""
    except LaunchError as error:
        return {}, str(error)


def _of_row(cells: Cells, planned: PredictedRun) -> tuple[Mapping[str, Range], tuple[str, ...]]:
    """Predict the row of a run as `planner validate` does; empty, with a note, if impossible."""
    schema = schema_for(planned)
    runs = Runs(columns=tuple(schema.columns), rows=(Run(line=1, cells=cells),))
    (prediction,) = predict(runs, Library(catalogue=planned.catalogue))
    column_ranges = ranges(prediction, KINDS[schema.kind])
    if not column_ranges:
        return {}, (f"`planner validate` cannot predict the row of the run: {prediction.reason}",)
    run_profile, plan_profile = _software(prediction.case), _software(planned.inputs)
    if run_profile != plan_profile:
        return column_ranges, (
            f"in a table of runs {cells['framework']} is the profile {run_profile}, in the plan "
            f"{plan_profile}: `planner calibrate` fits the first",
        )
    return column_ranges, ()


def _software(source: Any) -> str:
    """The name of the profile of a case or of a setting."""
    return str((getattr(source, "framework", None) or source.engine).name)


def _about_row(
    cells: Cells, planned: PredictedRun, quantities: list[LoggedQuantity]
) -> Iterator[str]:
    """Yield notes if the row of the run is predicted differently from the plan."""
    if not cells:
        return
    row_ranges, about = _of_row(cells, planned)
    yield from about
    for quantity in quantities:
        predicted = row_ranges.get(quantity.name)
        is_same_memory_kind = not quantity.kind or quantity.kind == cells.get("memory_kind")
        if (
            quantity.name in (*RATES, OUT_OF_MEMORY)
            or predicted is None
            or quantity.predicted is None
            or not is_same_memory_kind
        ):
            continue
        if abs(predicted.value / quantity.predicted.value - 1) > _UNLIKE:
            yield (
                f"the row of the run does not hold the whole plan: `planner validate` predicts "
                f"{predicted.value:.4g} for its {quantity.name}, the plan "
                f"{quantity.predicted.value:.4g}"
            )

"""The question as lines, and the message when nothing is feasible."""

from __future__ import annotations

import math
import shlex
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from planner.base.csv_cells import number_of_row
from planner.base.formatting import (
    format_count,
    format_duration,
    format_gib,
    format_large,
    format_limit,
    format_probability,
)
from planner.base.units import GIB
from planner.confidence.intervals import MEDIAN
from planner.configurations.configuration_tables import (
    OUT_OF_HOST_MEMORY,
    PoolConfigurations,
    ServingConfigurations,
)
from planner.decide.near import TARGET_FIT_PROBABILITY
from planner.estimators.inference.batch_share import ServingInputs
from planner.estimators.machine import Machine
from planner.layers.model import count_parameters
from planner.optimize.collector import NearestMiss
from planner.optimize.problem import Problem
from planner.optimize.result import SearchResult
from planner.optimize.result_columns import fit_probability
from planner.question.terms import glossary
from planner.show.output_blocks import GAP, TOTAL, Block, KeyValues, Title, make_lines, text_table
from planner.show.presenters.format_results import format_host_memory
from planner.show.presenters.uncertainty import format_fit
from planner.show.reports import SearchReport
from planner.specs.engine import MemoryShare
from planner.specs.model import ModelSpec
from planner.specs.spec_paths import SpecKind
from planner.specs.training_workload import RlWorkload, TrainingWorkload
from planner.workloads.image_inputs import tower_lines
from planner.workloads.make_plan import Plan, result_of
from planner.workloads.prediction_confidence import serving_share
from planner.workloads.workload import Evaluation

if TYPE_CHECKING:
    from planner.decide.explain.plan_comparison import PredictedPlan

ASSUMED = "Not given, assumed"
"""Title of the values that planner assumed."""

_SHOWN_AS = {kind.value.removesuffix("s"): kind.value for kind in SpecKind}


def question_blocks(plan: Plan) -> Iterator[Block]:
    """The model, the GPUs and the work."""
    title, *lines = question_lines(plan)
    yield make_lines(title, mark=TOTAL, indent="")
    yield make_lines(*lines, indent="")


def question_lines(plan: Plan) -> list[str]:
    """Return the question as lines; the first one is the title."""
    inputs, wording = plan.problem.inputs, plan.workload.wording
    settings = {source.inputs.model.name: source.inputs for source in plan.problem.sources}
    unusual = (
        line for serving_setting in settings.values() for line in wording.unusual(serving_setting)
    )
    lines = [question_title(plan), *omitted_lines(plan), *wording.question_lines(inputs), *unusual]
    if not inputs.machine.cluster.name.endswith("-default"):
        lines.append(f"in cluster {inputs.machine.cluster.name}")
    lines += ideal_lines(inputs.machine)
    if (confidence := plan.request.limit_confidence) > MEDIAN:
        lines.append(f"Limits: {100 * confidence:g} % likely to be kept")
    return lines


def defaults_blocks(plan: Plan) -> Iterator[Block]:
    """Every value that planner assumed because it was not specified."""
    if plan.defaults:
        yield Title(text=ASSUMED)
        yield KeyValues(pairs=plan.defaults)


def ideal_lines(machine: Machine) -> list[str]:
    """Return lines with the efficiencies of an idealized machine; empty for real machines."""
    if not machine.ideal:
        return []
    compute, memory = machine.flops_efficiency, machine.memory_efficiency
    intra_node = machine.gpu.efficiency.collective["all_reduce"].bandwidth_fraction
    inter_node = machine.cluster.scale_out.efficiency
    links = "links reach 100 % of their bandwidth"
    if min(intra_node, inter_node) < 1:
        links = (
            f"links reach {100 * intra_node:.3g} % inside a node and "
            f"{100 * inter_node:.3g} % between"
        )
    if compute is None and memory is None:
        if min(intra_node, inter_node) < 1:
            return [f"Ideal except for links: every latency is 0, {links}."]
        return ["Ideal: every efficiency is 1 and every latency 0."]
    peak, bandwidth = (f"{100 * (share or 1):.3g} %" for share in (compute, memory))
    return [
        f"Kernels reach {peak} of the peak and {bandwidth} of the memory bandwidth; "
        f"latencies are 0, {links}."
    ]


def omitted_lines(plan: Plan) -> list[str]:
    """Return lines on parts of a model that are not predicted, such as an audio encoder."""
    model = plan.problem.inputs.model
    work, tower = plan.problem.inputs.workload, model.vision_tower
    if "model" in plan.problem.axes or not model.omitted_parts:
        return []
    if tower is not None and not isinstance(work, RlWorkload):
        return tower_lines(model, work)
    size = model.omitted_parameters
    size_text = f" (about {format_large(size)} parameters)" if size else ""
    has_audio = model.audio_tower is not None and not isinstance(work, TrainingWorkload)
    left_out = [part for part in model.omitted_parts if not (has_audio and part == "audio encoder")]
    parts = " and ".join(f"the {part}" for part in left_out)
    if not left_out:
        return []
    return [f"As a text model: {parts}{size_text} and image patches are not counted"]


def question_title(plan: Plan) -> str:
    """Return the model (or the number of models) and the GPUs as a title."""
    model = plan.problem.inputs.model
    models = plan.problem.axes.get("model", ())
    name = f"{len(models)} models" if models else f"{model.name} ({_size(model)})"
    return f"{name} on {where(plan)}"


def where(plan: Plan) -> str:
    """Return the number and the type of the GPUs of a plan as text."""
    sources = plan.problem.sources
    gpus = list(dict.fromkeys(source.gpu for source in sources))
    name = gpus[0] if len(gpus) == 1 else f"each of {len(gpus)} GPUs"
    others = {gpu for source in sources for gpu in source.gpus} - set(gpus)
    name = " and ".join([name, *sorted(others)])
    if not plan.counts:
        return name
    return f"{' or '.join(format_count(n) for n in plan.counts)} x {name}"


def _size(model: ModelSpec) -> str:
    """Return the number of parameters of a model as text, with multi-token prediction."""
    parameters = f"{format_large(count_parameters(model).total)} parameters"
    if model.mtp_num_layers:
        modules = "module" if model.mtp_num_layers == 1 else f"{model.mtp_num_layers} modules"
        parameters += f" with the {modules} of multi-token prediction"
    return parameters


def counts_blocks(report: SearchReport) -> Iterator[Block]:
    """Yield the number of configurations, and how many each rule rejects."""
    manifest, texts = report.manifest, report.rejection_texts
    evaluated, seconds = manifest["configurations_evaluated"], manifest["search_time_s"]
    yield Title(text=f"{report.workload.wording.noun}s".capitalize())
    rate = format_large(evaluated / max(seconds, 1e-9))
    rejected = sorted(manifest["rejected_by"].items(), key=lambda item: -item[1])
    rows = [
        (
            format_count(evaluated),
            f"evaluated in {format_duration(seconds)} ({rate} per second)",
        ),
        (format_count(manifest["configurations_feasible"]), "feasible"),
        *((format_count(n), f"rejected: {texts.get(name, name)}") for name, n in rejected),
    ]
    yield text_table(("", ""), rows, text_columns=(1,))


def describe(problem: Problem, rejection: str) -> str:
    """Return the text that describes a rule, memory or limit that rejects configurations."""
    for rule in problem.sources[0].rules:
        if rule.name == rejection:
            return rule.description
    for constraint in problem.constraints:
        if constraint.name == rejection:
            side = "above" if constraint.sign > 0 else "below"
            bound = format_limit(constraint.bound, constraint.unit)
            return f"{rejection} {side} {bound}{constraint.format_confidence}"
    if rejection in (objective.name for objective in problem.objectives):
        return f"an objective is unknown, such as {rejection}"
    return rejection


def assumed_blocks(plan: Plan) -> Iterator[Block]:
    """Yield how many values of the specs are assumed, and where they are marked."""
    yield from assumed_number_blocks(plan.assumed, plan.digests)


def assumed_number_blocks(assumed: Sequence[str], specs: Iterable[str]) -> Iterator[Block]:
    """Yield how many numbers of ``specs`` are ``assumed``, and where they are marked."""
    if not assumed:
        return
    kinds = {name.split()[0] for name in assumed}
    yield GAP
    yield make_lines(
        f"{len(assumed)} numbers of these specs are assumed, or defaults of a class of GPUs. "
        "They are marked in",
        indent="",
    )
    for spec in specs:
        kind, _, name = spec.partition(" ")
        if kind in kinds and kind in _SHOWN_AS:
            yield make_lines(
                f"  planner specs show {_SHOWN_AS[kind]} {shlex.quote(name)}", indent=""
            )


_WIDTH = 80
_OPTION = "max_model_len"
# The context length of a server that its slots share equally.
_SHARED = "context_size"


def infeasible_message(
    plan: Plan,
    result: SearchResult,
    evaluation: Evaluation | None = None,
    suggestions: Sequence[str] | None = None,
) -> str:
    """Return why nothing is feasible: rejections per rule, nearest misses and suggestions.

    ``evaluation`` is the configuration of `planner estimate`; without ``suggestions``, options
    that make the request feasible are searched.
    """
    misses = {miss.rejection: miss for miss in result.nearest_misses}
    counts = sorted(result.rejected_by.items(), key=lambda item: -item[1])
    width = max((len(format_count(number)) for _, number in counts), default=1)
    lines = [headline(plan, result)]
    for name, number in counts:
        sentence = _sentence(plan, result, misses.get(name), name, evaluation)
        number_first = (
            "" if result.configurations_evaluated == 1 else f"{format_count(number):>{width}}  "
        )
        lines.append(wrap_sentence(sentence, "  " + number_first))
    if result.configurations_feasible:
        goals = " or ".join(objective.name for objective in plan.problem.objectives)
        feasible = format_count(result.configurations_feasible)
        lines.append(wrap_sentence(f"{feasible} fit, but their {goals} is unknown", "  "))
        return "\n".join(lines)
    if suggestions is None:
        from planner.decide.suggestions.infeasible import suggest_feasible

        suggestions = suggest_feasible(plan, result)
    if suggestions:
        lines.append(wrap_sentence(f"Try {join_or(suggestions)}.", ""))
    return "\n".join(lines)


def miss_texts(plan: Plan, result: SearchResult) -> list[str]:
    """Sentences on the nearest misses: what they need and what is available."""
    return [_sentence(plan, result, miss, miss.rejection, None) for miss in result.nearest_misses]


def misfit_verdict(plan: Plan, evaluation: Evaluation) -> str:
    """Return a sentence on why one configuration does not fit, does not start or cannot run."""
    result, name = result_of(plan, evaluation), str(evaluation.rejected_by)
    miss = next((miss for miss in result.nearest_misses if miss.rejection == name), None)
    if miss is None:
        return f"Cannot run: {_sentence(plan, result, None, name, evaluation)}."
    if name not in plan.problem.sources[0].rejections:
        return f"Fits, but misses a limit: {_sentence(plan, result, miss, name, evaluation)}."
    if start := start_problem(miss):
        return f"{start[0].upper()}{start[1:]}."
    return f"Does not fit: {_memory_need(plan, miss)}."


def _memory_need(plan: Plan, miss: NearestMiss) -> str:
    """Return the memory that a configuration needs, and what is usable."""
    host_memory = format_host_memory(miss.row, miss.source.inputs.machine)
    bound, value = limit_texts(miss, plan.problem)
    if miss.rejection == OUT_OF_HOST_MEMORY.name:
        if host_memory:
            peak = format_gib(number_of_row(miss.row, "peak_memory_gib") * GIB)
            of_usable = format_gib(miss.source.usable_memory(miss.row))
            needs = f"the fullest GPU needs {peak.removesuffix(' GiB')} of {of_usable}"
            return f"host memory {host_memory}; {needs}"
        return f"{describe(plan.problem, miss.rejection)}: {value} against {bound}"
    if need := _need_without_cache(miss):
        return need
    if room := _room(plan, miss):
        needs = f"weights and the cache of all requests need {value}"
        return f"{needs}, the engine may use {bound} ({room})"
    usable, probability = miss.source.usable_memory(miss.row), fit_probability(miss.row)
    texts = []
    if math.isfinite(probability):
        texts.append(f"{format_probability(probability)} likely to fit")
    if miss.value <= usable:
        texts.append(f"at this confidence {bound} are usable")
    of_usable = f"{value.removesuffix(' GiB')} of {format_gib(usable)}"
    notes = f" ({'; '.join(texts)})" if texts else ""
    return f"peak {of_usable} on the fullest GPU{notes}"


def _need_without_cache(miss: NearestMiss) -> str:
    """Return which part of a server's memory leaves no room for a cache; "" if none does."""
    inputs = miss.source.inputs
    if not isinstance(inputs, ServingInputs) or "memory_activations_gib" not in miss.row:
        return ""
    weights, adapters, reserved, activations = (
        number_of_row(miss.row, f"memory_{name}_gib") * GIB
        for name in ("weights", "adapters", "reserved", "activations")
    )
    loaded, bound = weights + adapters + reserved, format_gib(miss.room)
    if weights + adapters > miss.room:
        need = f"weights need {format_gib(weights + adapters)}"
        return f"{need}, the engine may use {bound}"
    if loaded > miss.room:
        need = f"weights and reserved memory need {format_gib(loaded)}"
        return f"{need}, the engine may use {bound}"
    if loaded + activations <= miss.room:
        return ""
    left = format_gib(miss.room - loaded)
    need = f"activations of a step need {format_gib(activations)}, weights and reserved "
    if inputs.engine.memory.memory_share is MemoryShare.LOADED:
        return f"{need}memory leave {left} outside the cache, whose share is taken first"
    return f"{need}memory leave {left} of the {bound} that the engine may use"


def infeasible_reason(seen: PredictedPlan) -> str:
    """Why a compared plan is infeasible."""
    texts = miss_texts(seen.plan, result_of(seen.plan, seen.evaluation))
    return texts[0] if texts else seen.reason


def headline(plan: Plan, result: SearchResult) -> str:
    """Return the first line of `infeasible_message`: how many candidates, model and GPUs."""
    model_and_gpus = f"{plan.problem.inputs.model.name} on {where(plan)}"
    if result.configurations_evaluated != 1:
        noun = plan.workload.wording.noun
        number = format_count(result.configurations_evaluated)
        return f"No {noun} of {number} fits {model_and_gpus}."
    if result.nearest_misses:
        return f"The configuration does not fit {model_and_gpus}."
    return f"The configuration is impossible for {model_and_gpus}."


def _sentence(
    plan: Plan,
    result: SearchResult,
    miss: NearestMiss | None,
    name: str,
    evaluation: Evaluation | None,
) -> str:
    """Return why the rule or limit ``name`` rejects configurations, with its nearest miss.

    Without a miss (None), the sentence describes the rule itself.
    """
    text, wording = describe(plan.problem, name), plan.workload.wording
    if miss is None:
        blamed = wording.broken_rule_text(evaluation.candidates, name) if evaluation else ""
        return f"{text}: {blamed}" if blamed else text
    if not math.isfinite(miss.value):
        return f"{text}: {name} is unknown, give --price"
    bound, value = limit_texts(miss, plan.problem)
    is_memory = name in plan.problem.sources[0].rejections
    room_text = _room(plan, miss) if is_memory else ""
    if is_memory and (start := start_problem(miss)):
        if result.configurations_evaluated == 1:
            return start
        return f"{start} (nearest: {wording.format_short(miss.row)})"
    # If requests exceed the KV cache, the probability to fit does not apply.
    is_host = name == OUT_OF_HOST_MEMORY.name
    if is_host and (host_memory := format_host_memory(miss.row, miss.source.inputs.machine)):
        nearest_text = (
            ""
            if result.configurations_evaluated == 1
            else f" (nearest: {wording.format_short(miss.row)})"
        )
        peak = float(str(miss.row["peak_memory_gib"])) * GIB
        usable = miss.source.usable_memory(miss.row)
        gpu_text = f"of a GPU {format_gib(peak)} against {format_gib(usable)}"
        return f"{text}: {host_memory}; {gpu_text}{nearest_text}"
    likelihood = format_fit(miss.row) if is_memory and not (room_text or is_host) else ""
    if result.configurations_evaluated == 1:
        against = f"{value} against {bound}"
        if likelihood:
            usable = miss.source.usable_memory(miss.row)
            lowered_bound = f" ({bound} at this confidence)" if miss.bound < usable else ""
            text = "out of memory"
            against = f"peak {value} on the fullest GPU; {format_gib(usable)} usable{lowered_bound}"
        return f"{text}: {', '.join(filter(None, (against, likelihood, room_text)))}"
    limits = {limit.name: limit.format_confidence for limit in plan.problem.constraints}
    missed = f"miss {name} {bound}{limits.get(name, '')}"
    requirement = f"need more than {bound}" if is_memory else missed
    nearest = ", ".join(
        filter(None, (value, likelihood, room_text, wording.format_short(miss.row)))
    )
    return f"{requirement} (nearest: {nearest})"


def _room(plan: Plan, miss: NearestMiss) -> str:
    """How many requests fit the memory, as in the suggestions."""
    fitting = plan.workload.fitting(miss.source, miss.configuration)
    return plan.workload.wording.room(miss.row, int(fitting.get("concurrency", 0)))


def limit_texts(miss: NearestMiss, problem: Problem) -> tuple[str, str]:
    """Return the limit that a configuration misses and its value, both as text with unit.

    Both have enough digits to differ.
    """
    units = {constraint.name: constraint.unit for constraint in problem.constraints}
    unit = units.get(miss.rejection, "byte")
    limit = miss.room if unit == "byte" else miss.bound
    bound, value = format_limit(limit, unit), format_limit(miss.value, unit)
    if bound == value and unit == "byte":
        return f"{limit / GIB:.3f} GiB", f"{miss.value / GIB:.3f} GiB"
    return bound, value


def join_or(options: Sequence[str]) -> str:
    """``a, b or c``."""
    if len(options) == 1:
        return options[0]
    return f"{', '.join(options[:-1])} or {options[-1]}"


def wrap_sentence(sentence: str, indent: str) -> str:
    """Return a sentence broken between words into lines of at most 80 characters."""
    return textwrap.fill(
        sentence,
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=" " * len(indent),
        break_long_words=False,
        break_on_hyphens=False,
    )


def start_problem(miss: NearestMiss) -> str:
    """Return why an engine cannot start with its longest request, and lengths that fit.

    Empty if the longest request is not the cause.
    """
    from planner.estimators.inference.serving_memory import longest_that_fits, serving_memory

    inputs, c = miss.source.inputs, miss.configuration
    if not isinstance(inputs, ServingInputs) or not isinstance(c, ServingConfigurations):
        return ""
    if inputs.workload.max_model_len is None:
        return ""
    if inputs.engine.memory.shortens_longest:
        return ""
    c = c.decode if isinstance(c, PoolConfigurations) else c
    memory, longest = serving_memory(inputs, c), inputs.workload.max_model_len
    longest_fitting = longest_that_fits(inputs, memory, c)
    surely = min(serving_share(inputs, TARGET_FIT_PROBABILITY), inputs.sure_share, 1.0)
    longest_likely, longest_sure = (
        longest_that_fits(inputs, memory, c, share)
        for share in (min(inputs.sure_share, 1.0), surely)
    )
    if not 0 < longest_likely < longest:
        return ""
    slots = 1 if inputs.engine.scheduler.continuous else int(c.concurrency[0])
    option, times = _longest_request_option(inputs.engine.name, slots)
    outlook = "starts" if longest_sure else "may start"
    if 0 < longest_sure < longest_likely:
        outlook += f", {longest_sure * times} surely"
    verb, capacity = "does not start", f"{longest_fitting:,}"
    if longest_fitting >= longest:
        verb, capacity = "may not start", f"little more ({format_fit(miss.row)})"
    if slots > 1:
        capacity = f"{capacity} in each of {slots} slots"
    return (
        f"{verb}: the longest request needs {longest:,} tokens, the cache holds {capacity}; "
        f"`{option} {longest_likely * times}` {outlook}"
    )


def _longest_request_option(engine: str, slots: int) -> tuple[str, int]:
    """Return the engine's option for the longest request, and how many requests share it."""
    from planner.launch.option_table import OptionRole
    from planner.launch.targets import readers

    for target in readers().values():
        if any(engine.startswith(profile) for profile in target.profiles):
            for name, number in ((_OPTION, 1), (_SHARED, slots)):
                for row in target.table.rows_of(name, OptionRole.IS, OptionRole.READS):
                    return row.option, number
    return glossary()[_OPTION].option_name, 1

"""The question, the assumptions, and the counts of configurations."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence

from planner.base import formatting
from planner.confidence.intervals import MEDIAN
from planner.estimators.machine import Machine
from planner.layers.model import count_parameters
from planner.optimize.problem import Problem
from planner.show.output_blocks import GAP, TOTAL, Block, KeyValues, Title, make_lines, text_table
from planner.show.reports import SearchReport
from planner.specs.model import ModelSpec
from planner.specs.rollouts import RlWorkload
from planner.specs.spec_paths import SpecKind
from planner.specs.training_workload import TrainingWorkload
from planner.workloads.image_inputs import tower_lines
from planner.workloads.make_plan import Plan

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
    size_text = f" (about {formatting.format_large(size)} parameters)" if size else ""
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
    return f"{' or '.join(formatting.format_count(n) for n in plan.counts)} x {name}"


def _size(model: ModelSpec) -> str:
    """Return the number of parameters of a model as text, with multi-token prediction."""
    parameters = f"{formatting.format_large(count_parameters(model).total)} parameters"
    if model.mtp_num_layers:
        modules = "module" if model.mtp_num_layers == 1 else f"{model.mtp_num_layers} modules"
        parameters += f" with the {modules} of multi-token prediction"
    return parameters


def counts_blocks(report: SearchReport) -> Iterator[Block]:
    """Yield the number of configurations, and how many each rule rejects."""
    manifest, texts = report.manifest, report.rejection_texts
    evaluated, seconds = manifest["configurations_evaluated"], manifest["search_time_s"]
    yield Title(text=f"{report.workload.wording.noun}s".capitalize())
    rate = formatting.format_large(evaluated / max(seconds, 1e-9))
    rejected = sorted(manifest["rejected_by"].items(), key=lambda item: -item[1])
    rows = [
        (
            formatting.format_count(evaluated),
            f"evaluated in {formatting.format_duration(seconds)} ({rate} per second)",
        ),
        (formatting.format_count(manifest["configurations_feasible"]), "feasible"),
        *(
            (formatting.format_count(n), f"rejected: {texts.get(name, name)}")
            for name, n in rejected
        ),
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
            bound = formatting.format_limit(constraint.bound, constraint.unit)
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

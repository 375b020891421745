"""The texts of reinforcement learning results: the step, layouts and broken rules."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from planner.base import formatting
from planner.base.arrays import first
from planner.base.csv_cells import number_of_row
from planner.base.formatting import format_large
from planner.base.software_enums import Placement
from planner.configurations.configuration_tables import DEGREES, Reason, format_value
from planner.configurations.rl_configurations import ROLLOUT, RlConfigurations
from planner.configurations.rl_rules import (
    RL_ONLY_RULES,
    RL_REJECTING,
    ROLLOUT_CACHE,
)
from planner.estimators.rl.rl_inputs import RlInputs
from planner.estimators.training.flops import adapter_parameter_count
from planner.optimize.source import Candidates
from planner.question.terms import terms_of
from planner.workloads.rl.results import RlRuns
from planner.workloads.training.question import (
    format_adapter,
)


def question_lines(inputs: RlInputs) -> list[str]:
    """Lines of text on an RL step: prompts, answers, lengths, further models, LoRA adapters."""
    work = inputs.workload
    lengths = f"{work.input_tokens:,} tokens in, {work.output_tokens:,} out on average"
    lines = [
        f"{work.algorithm}: {work.prompts_per_step:,} prompts x {work.samples_per_prompt:,} "
        f"answers a step, {lengths}, {work.output_cap:,} at most"
    ]
    models = [
        name for name in ("reference model", "critic") if getattr(work, name.replace(" ", "_"))
    ]
    passes = ["old log-probabilities"] if work.old_logprob else []
    if models or passes:
        lines.append(f"Besides the update, the trainer computes {', '.join([*passes, *models])}")
    if work.is_frozen:
        lines.append(_format_adapter_sync(inputs))
    return lines


def _format_adapter_sync(inputs: RlInputs) -> str:
    """A line on the trained LoRA parameters and on the weights that the engine receives."""
    work = inputs.workload
    served = "the adapters only" if inputs.serves_adapter else "all weights, adapters merged"
    count = format_large(adapter_parameter_count(inputs.packed))
    return (
        f"{format_adapter(work)}: {count} parameters trained; the engine gets {served}; no "
        "published step trains adapters, so intervals are those of full training"
    )


ENGINE_DEGREES = {"tp": f"{ROLLOUT}tensor_parallel", "ep": f"{ROLLOUT}expert_parallel"}


def layout(row: Mapping[str, object]) -> str:
    """``async(1) 24+40: tp2 ep8 / 20 x tp2``: placement with staleness, the split, the layouts."""
    partial = ["partial"] if row["partial_rollout"] else []
    details = " ".join([*_format_staleness(row), *partial])
    return f"{row['placement']}{f'({details})' if details else ''} {_format_split(row)}"


def plan_words(row: Mapping[str, object]) -> str:
    """The layout of a row as text, with the details in brackets spelled out."""
    older = [f"staleness {steps}" for steps in _format_staleness(row)]
    partial = ["partial rollouts"] if row["partial_rollout"] else []
    return ", ".join([f"{row['placement']} {_format_split(row)}", *older, *partial])


def _format_staleness(row: Mapping[str, object]) -> list[str]:
    """The staleness, unless the placement implies it."""
    is_implied = row["placement"] == Placement.ONE_STEP_OFF.word or not row["staleness"]
    return [] if is_implied else [str(row["staleness"])]


def _format_split(row: Mapping[str, object]) -> str:
    """GPUs and layouts as text, ``24+40: tp2 ep8 / 20 x tp2``: trainer, then engines."""
    train, rollout = number_of_row(row, "train_gpus"), number_of_row(row, "rollout_gpus")
    has_separate_gpus = row["placement"] != Placement.COLOCATED.word
    others = number_of_row(row, "reference_gpus") + number_of_row(row, "critic_gpus")
    sides = [train, rollout] if has_separate_gpus else [rollout]
    gpus = "+".join(f"{side:,.0f}" for side in (*sides, others) if side)
    terms = terms_of("train", "parameter")
    sizes = {terms[name].short: number_of_row(row, name) for name in DEGREES if name in row}
    degrees = (
        " ".join(f"{abbreviation}{n:,.0f}" for abbreviation, n in sizes.items() if n > 1) or "dp"
    )
    split = " ".join(
        f"{abbreviation}{number_of_row(row, name):,.0f}"
        for abbreviation, name in ENGINE_DEGREES.items()
        if number_of_row(row, name) > 1
    )
    number = rollout / number_of_row(row, ENGINE_DEGREES["tp"])
    return f"{gpus}: {degrees} / {number:,.0f} x {split or 'tp1'}"


def format_broken_rule(candidates: Candidates, rule: str) -> str:
    """The values that break a rule, and the nearest value that satisfies it, as text."""
    if not isinstance(candidates, RlRuns):
        raise TypeError(f"{candidates!r} is not reinforcement learning.")
    text = _broken_rule_texts(candidates).get(rule, "")
    remedies = _remedies(candidates).get(rule, {})
    fixes = (_nearest_remedy(candidates, rule, name, values) for name, values in remedies.items())
    nearest = next(filter(None, fixes), "")
    if rule == "ranks" and not nearest:
        work = candidates.source.inputs.workload
        ranks = int(first(candidates.configurations.data_parallel))
        unit = ranks // math.gcd(ranks, work.samples_per_prompt)
        nearest = f"prompts_per_step={max(round(work.prompts_per_step / unit), 1) * unit}"
    return f"{text}; nearest: {nearest}" if nearest else text


def _broken_rule_texts(runs: RlRuns) -> dict[str, str]:
    """Text on the values of the first configuration that each rule checks, by rule."""
    c, inputs, name = runs.configurations, runs.source.inputs, runs.source.profile
    rollouts, batch = inputs.rollouts, first(c.global_batch_size)
    placement = Placement(int(first(c.placement))).word
    tp, generates = first(c.rollout_tensor_parallel), first(c.rollout_gpus)
    texts = (
        f"{name} has {', '.join(rollouts.placements)}",
        f"{first(c.trainer_gpus):,.0f} of {first(c.num_gpus):,.0f} GPUs train",
        f"the trainer is on {inputs.machine.gpu.name}, the engine on "
        f"{inputs.engine_machine.gpu.name}; {name} has {', '.join(rollouts.placements)}",
        f"staleness {first(c.staleness):g} of {placement}",
        f"{name} can in {', '.join(rollouts.partial) or 'no placement'}",
        f"{name} can with {' and '.join(rollouts.separate_models) or 'none'}",
        f"{tp:,.0f} of {generates:,.0f} GPUs",
        f"{batch:,.0f} of {inputs.workload.samples:,}",
        f"{batch:,.0f} sequences on {first(c.data_parallel):g} copies",
        f"{first(c.reference_gpus):,.0f} and {first(c.critic_gpus):,.0f} GPUs",
        f"{inputs.machine.gpu.name} and {inputs.engine_machine.gpu.name}",
        f"that takes {formatting.format_gib(first(runs.step.rollout.needed))} a GPU with "
        "all weights",
    )
    rules: tuple[Reason, ...] = (*RL_ONLY_RULES, ROLLOUT_CACHE)
    return {rule.name: text for rule, text in zip(rules, texts, strict=True)}


def _remedies(runs: RlRuns) -> dict[str, dict[str, Sequence[float]]]:
    """Values to try for parameters that may satisfy a broken rule, by rule and parameter."""
    c = runs.configurations
    gpus: dict[str, Sequence[float]] = {"train_gpus": range(1, int(first(c.num_gpus)) + 1)}
    batches: dict[str, Sequence[float]] = {
        "global_batch_size": _divisors(runs.source.inputs.workload.samples)
    }
    degrees: dict[str, Sequence[float]] = {
        "rollout_tensor_parallel": _divisors(int(first(c.rollout_gpus)))
    }
    return {
        "gpu_split": gpus,
        "staleness": {"staleness": (0, 1)},
        "partial_rollout": {"staleness": (1,), "partial_rollout": (0,)},
        "rollout_split": degrees,
        "step_batch": batches,
        "ranks": {**batches, **gpus},
        "gpu_types": {"placement": [Placement.SEPARATE, Placement.ASYNC, Placement.ONE_STEP_OFF]},
        "further_models": {"reference_gpus": (0,), "critic_gpus": (0,)},
        ROLLOUT_CACHE.name: {"rollout_gpu_memory": [n / 100 for n in range(1, 100)], **degrees},
    }


def _nearest_remedy(runs: RlRuns, rule: str, name: str, values: Sequence[float]) -> str:
    """The value nearest to the current one that satisfies a rule, as ``name=value``.

    Empty if no value does.
    """
    candidates = np.array(values, dtype=np.float64)
    codes = runs.otherwise(**{name: RlConfigurations.cast(name, candidates)}).rejected_by
    number = 1 + [rejecting.name for rejecting in RL_REJECTING].index(rule)
    accepted = candidates[np.broadcast_to((codes == 0) | (codes > number), candidates.shape)]
    if not accepted.size:
        return ""
    current = first(getattr(runs.configurations, name))
    best = min(accepted, key=lambda value: abs(value - current))
    return f"{name}={format_value(name, best)}".lower()


def _divisors(number: int) -> list[float]:
    """All divisors of a number, ascending."""
    return [float(n) for n in range(1, number + 1) if number % n == 0]

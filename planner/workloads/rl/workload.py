"""Reinforcement learning as a workload."""

from __future__ import annotations

from typing import Any

import numpy as np

from planner.base.csv_cells import Value
from planner.base.enums import AdapterKind
from planner.base.formatting import SURE_FIT
from planner.base.software_enums import LossKernel
from planner.configurations.configuration_tables import DEGREES
from planner.configurations.rl import RlConfigurations
from planner.estimators.ideal_hardware import ideal_framework
from planner.optimize.source import Source
from planner.question.terms import terms_about, terms_of
from planner.workloads.assumptions import Assumption, EvaluatedChoice, make_assumption
from planner.workloads.rl.results import (
    ENGINE_DEGREES,
    RlSource,
    format_broken_rule,
    layout,
    plan_words,
    question_lines,
    rl_steps,
)
from planner.workloads.rl.space import (
    ADAPTER_FIELDS,
    RL_ONLY_PARAMETERS,
    SINGLE,
    make_rl_question,
    rl_sources,
    trains_on_answers,
)
from planner.workloads.training.question import adapter_answers
from planner.workloads.training.space import default_notes, source_defaults
from planner.workloads.workload import ResultWording, Workload, evaluate_single

_LONGEST = ("output_cap",)


def _reproducing_answers(source: Source) -> dict[str, Value]:
    """The answers, by question, with which a plan's open values are reproduced."""
    if not isinstance(source, RlSource):
        raise TypeError(f"{source} is not reinforcement learning.")
    work, questions = source.inputs.workload, terms_of("rl", "question")
    answers: dict[str, Value] = {
        name: getattr(work, name)
        for name in questions
        if hasattr(work, name) and name not in ADAPTER_FIELDS
    }
    if not work.micro_batch_tokens:
        del answers["micro_batch_tokens"]
    del answers["adapter_sync"]
    if work.is_frozen:
        answers |= adapter_answers(work) | {"adapter": str(work.adapter)}
        answers["adapter_sync"] = str(source.inputs.adapter_sync)
    answers |= {"algorithm": str(work.algorithm), "max_steps": work.steps}
    answers |= {"gpu": source.gpu, "framework": source.profile}
    answers |= {"rollout_gpu": source.gpus[1] if len(source.gpus) > 1 else None}
    return answers | {
        "engine": source.inputs.engine_word,
        "reliability": source.site.reliability.name,
    }


def open_rl(chosen: EvaluatedChoice) -> list[Assumption]:
    """The assumptions of a plan: which passes of verl compute the entropy of all words.

    Its update did in all releases until verl-project/verl pull request 1100 (2025-04-17). As few
    still run those, they change no verdict that is sure.
    """
    inputs: Any = chosen.source.inputs
    runs: Any = chosen.candidates
    is_auto = np.all(runs.configurations.trainer.loss_kernel == LossKernel.AUTO)
    if inputs.framework.name != "verl" or not is_auto:
        return []
    eager = RlConfigurations.cast("loss_kernel", [LossKernel.EAGER])
    before = {"it in the update, as before": runs.otherwise(loss_kernel=eager)}
    assumed = "outside the update, as verl from 2025-04-17 on"
    is_unsure = bool(np.min(runs.fit_probability) < SURE_FIT)
    return [make_assumption("entropy", assumed, before, of_release=is_unsure)]


RL = Workload(
    name="rl",
    profile_kind="framework",
    single=SINGLE,
    ask=make_rl_question,
    sources=rl_sources,
    objectives=lambda _: ("step_time", "memory_headroom"),
    ideal=ideal_framework,
    reproducing_answers=_reproducing_answers,
    usual=default_notes,
    unset_defaults=source_defaults,
    open_facts=open_rl,
    evaluate_once=evaluate_single,
    adapters=(AdapterKind.NONE, AdapterKind.LORA, AdapterKind.QLORA),
    suits=trains_on_answers,
    comparison_columns=("time_to_train_days", "cost_usd", "num_gpus"),
    timed=rl_steps,
    lengths=(*terms_about("length", "rl"), *_LONGEST),
    longest=_LONGEST,
    other_gpus=("rollout_gpu",),
    batch="",
    wording=ResultWording(
        noun="plan",
        question_lines=question_lines,
        format_short=plan_words,
        format_brief=plan_words,
        layout=layout,
        in_layout=(
            *DEGREES[:-1],
            *RL_ONLY_PARAMETERS[:4],
            *ENGINE_DEGREES.values(),
            "rollout_gpus",
        ),
        broken_rule_text=format_broken_rule,
        legend=lambda _: (
            "layout: placement (staleness, partial rollouts), GPUs that train + generate: the "
            "trainer's split / engines x theirs"
        ),
        results=lambda _: (
            "step_time_s",
            "time_generate_s",
            "time_update_s",
            "time_sync_s",
            "bottleneck",
            "tokens_per_s_per_gpu",
            "peak_memory_gib",
        ),
        shown_columns=(
            "step_time_s",
            "tokens_per_s_per_gpu",
            "cost_per_million_trained_tokens_usd",
        ),
        of_objective={"throughput": "tokens_per_s", "memory_headroom": "peak_memory_gib"},
    ),
)

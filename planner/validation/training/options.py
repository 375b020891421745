"""What few runs set beside their layout: split experts, their routing, rings and schedules."""

from __future__ import annotations

from typing import Any

from planner.base.software_enums import AttentionKernel, ExpertCompute
from planner.confidence.frameworks import FrameworkRule
from planner.configurations.software_rules import has_kernel
from planner.configurations.training import TrainingConfigurations
from planner.question.terms import glossary
from planner.specs.framework import FrameworkProfile
from planner.specs.gpu import GpuSpec
from planner.specs.model import ModelSpec
from planner.validation.models import NotPredicted
from planner.validation.runs import Run


def options_of(
    run: Run, profile: FrameworkProfile, rule: FrameworkRule, gpu: GpuSpec, model: ModelSpec
) -> dict[str, Any]:
    """What few runs set, as a run or its framework says, in the words of ``Layout``.

    Raises
    ------
    NotPredicted
        A column has a word that is none of its parameter's.
    """
    plain = TrainingConfigurations.plain()
    words = {
        "cp_comm_type": run.word("cp_comm_type") or profile.cp_comm_type,
        "pipeline_schedule": run.word("pipeline_schedule"),
        "attention_kernel": run.word("attention_kernel") or _kernel(rule, gpu),
        "expert_compute": run.word("expert_compute") or _experts(run, profile, rule, model),
        "torch_compile": run.word("torch_compile") if profile.compilation.selectable else "",
    }
    return {
        "expert_tensor_parallel": run.count("expert_tensor_parallel") or 1,
        "overlap_expert_parallel": bool(run.flag("overlap_expert_parallel")),
        "expert_capacity_factor": run.number("expert_capacity_factor") or 0.0,
        "expert_imbalance": max(run.number("expert_imbalance") or 1.0, 1.0),
        **{name: _code(name, word) if word else plain[name] for name, word in words.items()},
    }


def _kernel(rule: FrameworkRule, gpu: GpuSpec) -> str:
    """The kernels of attention that a framework usually has, where the GPU has them."""
    usual = AttentionKernel[rule.attention_kernel.upper()]
    return (usual if has_kernel(gpu, usual) else AttentionKernel.AUTO).word


def _experts(run: Run, profile: FrameworkProfile, rule: FrameworkRule, model: ModelSpec) -> str:
    """A loop up to the year in which its framework left it; a run of no year is of today."""
    year, last = run.number("year"), rule.loops_experts_until
    may_loop = profile.execution.expert_loop_time > 0 and model.num_experts > 0
    loops = may_loop and year is not None and last is not None and year <= last
    return (ExpertCompute.LOOP if loops else ExpertCompute.AUTO).word


def _code(name: str, word: str) -> Any:
    """The code of a word of a parameter."""
    known = {code.word: code for code in glossary()[name].codes}
    if word not in known:
        raise NotPredicted(f"{name} {word!r} is not {', '.join(known)}")
    return known[word]

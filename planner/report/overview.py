"""What was asked, what was assumed, and what became of the configurations."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console

from planner.configurations.rules import OUT_OF_HOST_MEMORY, OUT_OF_MEMORY, RULES
from planner.estimators.flops import adapter_parameter_count
from planner.estimators.parameters import count_parameters
from planner.estimators.share import Setting
from planner.optimize.constraints import Constraint
from planner.optimize.problem import Problem
from planner.optimize.result import SearchResult
from planner.optimize.serving.search import ServingResult
from planner.plan import Plan
from planner.report import text
from planner.report.console import make_table, print_pairs, print_title
from planner.serving_plan import ServingPlan

_DESCRIPTIONS = {
    rule.name: rule.description for rule in (*RULES, OUT_OF_HOST_MEMORY, OUT_OF_MEMORY)
}


def print_question(console: Console, plan: Plan) -> None:
    """The model, the GPUs and every value that nobody gave."""
    setting = plan.problem.setting
    model, machine = setting.model, setting.machine
    parameters = f"{text.large(count_parameters(model).total)} parameters"
    if model.mtp_num_layers:
        modules = "module" if model.mtp_num_layers == 1 else f"{model.mtp_num_layers} modules"
        parameters += f" with the {modules} of multi-token prediction"
    counts = " or ".join(text.count(n) for n in plan.problem.mesh.values["num_gpus"])
    console.print(f"{model.name} ({parameters}) on {counts} x {machine.gpu.name}", style="bold")
    if setting.workload.is_frozen:
        console.print(trained(setting))
    if not machine.cluster.name.endswith("-default"):
        console.print(f"in cluster {machine.cluster.name}")
    if machine.ideal:
        console.print("Ideal: every efficiency is 1 and every latency 0.")
    if plan.defaults:
        print_title(console, "Not given, so chosen")
        print_pairs(console, dict(plan.defaults))


def trained(setting: Setting) -> str:
    """What of a frozen model is trained."""
    workload = setting.workload
    count = text.large(adapter_parameter_count(setting))
    return (
        f"{workload.adapter} of rank {workload.lora_rank} on {workload.lora_targets}: "
        f"{count} parameters trained"
    )


def print_counts(
    console: Console,
    result: SearchResult | ServingResult,
    describe: Callable[[Any, str], str],
    noun: str = "Configurations",
) -> None:
    """How many configurations there were, and what rejected them, in words of ``describe``."""
    evaluated, seconds = result.configurations_evaluated, result.search_time
    print_title(console, noun)
    table = make_table(console, header=False)
    table.add_column(justify="right", no_wrap=True)
    table.add_column()
    rate = text.large(evaluated / max(seconds, 1e-9))
    table.add_row(
        text.count(evaluated), f"evaluated in {text.duration(seconds)} ({rate} per second)"
    )
    table.add_row(text.count(result.configurations_feasible), "feasible")
    for name, number in sorted(result.rejected_by.items(), key=lambda item: -item[1]):
        table.add_row(text.count(number), f"rejected: {describe(result.problem, name)}")
    console.print(table)


def describe(problem: Problem, rejection: str) -> str:
    """What a rule, the memory or a limit of the user's demands, in words."""
    if rejection in _DESCRIPTIONS:
        return _DESCRIPTIONS[rejection]
    return describe_limit(problem.constraints, rejection)


def describe_limit(constraints: Sequence[Constraint], name: str) -> str:
    """A limit of the user's in words."""
    (constraint,) = (c for c in constraints if c.name == name)
    side = "above" if constraint.limit.sign > 0 else "below"
    return f"{name} {side} {text.limit(constraint.bound, constraint.limit.unit)}"


def print_assumed(console: Console, plan: Plan | ServingPlan) -> None:
    """How many numbers behind the result nobody measured."""
    if not plan.assumed:
        return
    kinds = {name.split()[0] for name in plan.assumed}
    console.print()
    console.print(
        f"{len(plan.assumed)} numbers of these specs are assumed, or defaults of a class of GPUs. "
        "They are marked in"
    )
    for spec in plan.digests:
        kind, _, name = spec.partition(" ")
        if kind in kinds:
            console.print(f"  planner specs show {kind}s {shlex.quote(name)}")

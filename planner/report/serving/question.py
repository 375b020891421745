"""What was asked about serving, and what became of the configurations."""

from __future__ import annotations

from rich.console import Console

from planner.configurations.rules import OUT_OF_HOST_MEMORY
from planner.configurations.serving_rules import SERVING_RULES
from planner.estimators.inference.estimate import OUT_OF_MEMORY
from planner.estimators.parameters import count_parameters
from planner.optimize.serving.problem import ServingProblem
from planner.report import text
from planner.report.console import print_pairs, print_title
from planner.report.overview import describe_limit
from planner.serving_plan import ServingPlan
from planner.specs.serving import ServingWorkload

_DESCRIPTIONS = {
    **{rule.name: rule.description for rule in SERVING_RULES},
    OUT_OF_HOST_MEMORY.name: OUT_OF_HOST_MEMORY.description,
    OUT_OF_MEMORY: "weights and the cache of all requests need more than the engine may use",
}


def print_serving_question(console: Console, plan: ServingPlan) -> None:
    """The model, the GPUs, the requests and every value that nobody gave."""
    setting = plan.problem.setting
    parameters = text.large(count_parameters(setting.model).total)
    console.print(f"{setting.model.name} ({parameters} parameters) on {where(plan)}", style="bold")
    console.print(f"Requests: {requests(setting.workload)}")
    if not setting.machine.cluster.name.endswith("-default"):
        console.print(f"in cluster {setting.machine.cluster.name}")
    if setting.machine.ideal:
        console.print("Ideal: every efficiency is 1 and every latency 0.")
    if plan.defaults:
        print_title(console, "Not given, so chosen")
        print_pairs(console, dict(plan.defaults))


def where(plan: ServingPlan) -> str:
    """The GPUs of a plan in words."""
    pools = [source.pool for source in plan.problem.sources]
    gpus = list(dict.fromkeys(pool.gpu for pool in pools))
    name = gpus[0] if len(gpus) == 1 else f"each of {len(gpus)} GPUs"
    others = {source.prefill.gpu for source in plan.problem.sources} - set(gpus)
    name = " and ".join([name, *sorted(others)])
    if not plan.counts:
        return name
    return f"{' or '.join(text.count(n) for n in plan.counts)} x {name}"


def requests(workload: ServingWorkload) -> str:
    """The requests in words."""
    words = [f"{workload.input_tokens:,} tokens in, {workload.output_tokens:,} out"]
    if workload.request_rate is not None:
        words.append(f"{workload.request_rate:g} per second")
    if workload.prefix_cache_hit_rate:
        words.append(f"{text.percent(workload.prefix_cache_hit_rate)} of prompts cached")
    if workload.draft_tokens:
        words.append(
            f"{workload.draft_tokens} draft tokens accepted with {workload.acceptance_rate:g}"
        )
    if workload.lora_rank:
        words.append(f"LoRA adapters of rank {workload.lora_rank}")
    return ", ".join(words)


def describe_serving(problem: ServingProblem, rejection: str) -> str:
    """What a rule, the memory or a limit of the user's demands, in words."""
    return _DESCRIPTIONS.get(rejection) or describe_limit(problem.constraints, rejection)

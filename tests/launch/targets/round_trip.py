"""Random plans as jobs, and the way from a plan to a target's options and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import reject
from hypothesis import strategies as st

from planner.documents.shell.edits import ParsedOption
from planner.errors import InfeasibleError, SearchSpaceError, SpecError
from planner.launch.option_table import OptionRole
from planner.launch.read.parsed_launch import JobResources, LaunchSettings, ParsedCommand
from planner.launch.target import LaunchDraft, LaunchJob, LaunchTarget, Process
from planner.optimize.collector import iterate_rows, value_or_none
from planner.optimize.result_columns import full_columns
from planner.optimize.source import to_python_values
from planner.question.parse_values import parse_value
from planner.question.request import Request
from planner.question.terms import terms_of
from planner.workloads.make_plan import evaluate, make_single_plan
from planner.workloads.saved_plan import SavedPlan

MODELS = ("llama-2-7b", "llama-65b", "mixtral-8x7b", "deepseek-v3", "qwen3-30b-a3b", "gpt-3-175b")
HYBRIDS = ("nemotron-h-8b", "qwen3-next-80b-a3b")
ENOUGH = ("out_of_memory", "out_of_host_memory")
"""What rejects a job that a launch file can still say."""

_QUESTIONS = (
    "sequence_length",
    "adapter",
    "lora_rank",
    "lora_targets",
    "dropout",
    "mtp_num_layers",
)


def job_of(**asked: Any) -> LaunchJob | None:
    """The job of a request, whether it fits or not; None where a rule rejects it."""
    try:
        plan = make_single_plan(Request(**asked))
        found = evaluate(plan)
    except (SearchSpaceError, InfeasibleError, SpecError):
        return None
    if found.rejected_by and found.rejected_by not in ENOUGH:
        return None
    columns = full_columns(found.table(), [found.source])
    (row,) = iterate_rows(
        {name: [*map(value_or_none, to_python_values(each))] for name, each in columns.items()}
    )
    source: Any = found.source
    setting = source.inputs
    return LaunchJob(
        saved_plan=SavedPlan.of(plan, row),
        model=setting.model,
        gpu=setting.machine.gpu,
        cluster=setting.machine.cluster,
        profile=getattr(setting, plan.workload.profile_kind),
        row=row,
    )


@st.composite
def training_jobs(
    draw: st.DrawFn,
    framework: str = "megatron-lm",
    models: Sequence[str] = MODELS,
    adapters: Sequence[str] = ("none",),
    gpu: str = "h100-sxm",
    **fixed: Any,
) -> LaunchJob:
    """Plans to train that the rules allow, whether they fit or not.

    ``fixed`` are parameters and answers that every one of them has.
    """
    several = st.sampled_from
    tp, cp, pp = draw(several((1, 1, 2, 4, 8))), draw(several((1, 1, 2))), draw(several((1, 2, 4)))
    dp, mbs = draw(several((1, 2, 3, 8, 16))), draw(several((1, 2, 4)))
    recompute = draw(several(("none", "selective", "feed_forward", "full")))
    zero = draw(several((0, 1, 2, 3)))
    precision = draw(several(("bf16", "bf16", "fp16", "fp8")))
    settings = {
        "tensor_parallel": tp,
        "context_parallel": cp,
        "pipeline_parallel": pp,
        "virtual_pipeline": draw(several((1, 1, 2, 4))) if pp > 1 else 1,
        "expert_parallel": draw(several((1, 2, 4, 8))),
        "micro_batch_size": mbs,
        "sequence_parallel": draw(st.booleans()) if tp > 1 else False,
        "zero_stage": zero if dp * cp > 1 else 0,
        "data_parallel_replicas": draw(several((1, 1, 2))) if zero and dp > 2 else 1,
        "recompute": recompute,
        "recompute_num_layers": draw(several((0, 0, 4))) if recompute == "full" else 0,
        "offload": draw(several(("none", "none", "optimizer", "activations"))),
        "precision": precision,
        "flash_attention": cp > 1 or draw(several((True, True, False))),
        "fp8_attention": precision == "fp8" and draw(st.booleans()),
    }
    adapter = draw(several(tuple(adapters)))
    asked = {
        "workload": "train",
        "model": draw(several(tuple(models))),
        "gpu": gpu,
        "framework": framework,
        "num_gpus": tp * cp * pp * dp,
        "global_batch_size": dp * mbs * draw(several((1, 4, 8, 12))),
        "sequence_length": draw(several((1024, 2048))),
        "adapter": adapter,
        "dropout": draw(st.booleans()),
    }
    if adapter != "none":
        targets = draw(several(("query_value", "attention", "all_linear")))
        asked |= {"lora_rank": draw(several((8, 16, 64))), "lora_targets": targets}
    return _made(asked, settings, fixed)


@st.composite
def serving_jobs(
    draw: st.DrawFn,
    engine: str = "vllm",
    models: Sequence[str] = ("llama-2-7b", "mixtral-8x7b", "deepseek-v3", "qwen3-30b-a3b"),
    modes: Sequence[str] = ("aggregated", "disaggregated"),
    gpu: str = "h100-sxm",
    **fixed: Any,
) -> LaunchJob:
    """Plans to serve that the rules allow, whether they fit or not."""
    several = st.sampled_from

    def workers(prefix: str) -> tuple[int, dict[str, Any]]:
        tp, pp, dp = draw(several((1, 2, 4, 8))), draw(several((1, 1, 2))), draw(several((1, 1, 2)))
        each = {
            "tensor_parallel": tp,
            "pipeline_parallel": pp,
            "attention_data_parallel": dp,
            "expert_parallel": draw(several((1, tp, tp * dp))),
            "max_num_batched_tokens": draw(several((2048, 8192))),
            "quantization": draw(several(("w16a16", "fp8"))),
            "kv_cache": draw(several(("bf16", "fp8"))),
        }
        return tp * pp * dp, {prefix + name: value for name, value in each.items()}

    mode = draw(several(tuple(modes)))
    size, settings = workers("")
    gpus = size * draw(several((1, 2)))
    settings["concurrency"] = draw(several((1, 16, 256)))
    if mode == "disaggregated":
        of_prefill, own = workers("prefill_")
        replicas = draw(several((1, 2)))
        gpus += of_prefill * replicas
        settings |= {**own, "prefill_replicas": replicas}
    asked = {
        "workload": "serve",
        "model": draw(several(tuple(models))),
        "gpu": gpu,
        "engine": engine,
        "num_gpus": gpus,
        "mode": mode,
        "input_tokens": draw(several((512, 2048))),
        "output_tokens": draw(several((128, 1024))),
    }
    return _made(asked, settings, fixed)


def _made(asked: dict[str, Any], settings: dict[str, Any], fixed: Mapping[str, Any]) -> LaunchJob:
    parameters = set(settings)
    settings |= {name: value for name, value in fixed.items() if name in parameters}
    asked |= {name: value for name, value in fixed.items() if name not in parameters}
    # What the workload answers itself where nobody asked stays so: None.
    asked = {name: value for name, value in asked.items() if value is not None}
    job = job_of(settings=settings, **asked)
    if job is None or job.num_gpus % job.gpus_per_node:
        reject()
    return job


def found_of(
    target: LaunchTarget, draft: LaunchDraft, process: Process | None = None
) -> ParsedCommand:
    """One command of a draft as a reader finds it: its options, its words, its GPUs.

    Texts of variables are not known. Options of documents beside it are those of no command:
    give `Found.files` of your own with `dataclasses.replace`.
    """
    process = process or draft.processes[0]
    options: dict[str, ParsedOption] = {}
    positional: list[ParsedOption] = []
    for argument in process.arguments:
        first, *rest = [word if isinstance(word, str) else None for word in argument.words]
        if first is None or not first.startswith("-"):
            name, equals, value = (first or "").partition("=")
            if equals:
                name = name.removeprefix("+")  # hydra's mark of a key that its file has not
                options[name] = stated(name, value)
            else:
                positional += [stated("", word) for word in (first, *rest)]
        elif "=" in first:
            name, _, value = first.partition("=")
            options[name] = stated(name, value)
        else:
            options[first] = stated(first, *rest)
    return ParsedCommand(
        target=target.name,
        name="train.sh",
        text="",
        options=options,
        positional=tuple(positional),
        environment={name: stated(name, value) for name, value in process.environment.items()},
        resources=JobResources(
            num_nodes=stated("--nnodes", str(process.num_nodes)),
            gpus_per_node=stated("--nproc-per-node", str(process.gpus_per_node)),
        ),
    )


def stated(option: str, *texts: str | None) -> ParsedOption:
    """An option that stands nowhere in particular."""
    spans = (None,) * len(texts)
    return ParsedOption(option=option, texts=texts, line=1, spans=spans, full_span=None)


def lost(
    target: LaunchTarget, job: LaunchJob, answers: LaunchSettings, derived: bool = False
) -> dict[str, tuple[Any, Any]]:
    """Parameters and answers of a job that a file of it does not tell: what was, what is read.

    Those that the target cannot express do not count, if the draft tells them; nor do those
    that are the plan's own where nobody says anything, nor those that the target works out itself,
    unless they are ``derived`` and told.
    """
    terms = terms_of(job.workload, "parameter", "pool", "question")
    told = {remark.parameter for remark in target.make_draft(job).unexpressed}
    wrong: dict[str, tuple[Any, Any]] = {}
    asked = {name: job.saved_plan.answers.get(name) for name in _QUESTIONS}
    for name, value in {**job.saved_plan.parameters, **asked}.items():
        if name in told or value is None or name not in terms:
            continue
        if name.endswith(("gpu_memory_utilization", "rollout_gpu_memory")) and not value:
            continue  # an engine's default, which its files spell out
        if (name, value) == ("fp8_recipe", "auto"):
            continue  # files spell out the framework's own
        term = terms[name]
        text = answers.values.get(name)
        default = term.default or None
        back = default if text is None else text
        back = None if back is None else parse_value(term, back)
        is_derived = (text is None or not derived) and bool(
            target.table.rows_of(name, OptionRole.DERIVED)
        )
        if back != value and not is_derived:
            wrong[name] = (value, back)
    return wrong


def round_trip(target: LaunchTarget, job: LaunchJob) -> dict[str, tuple[Any, Any]]:
    """What is lost from a plan to the target's command and back: nothing, if all is well."""
    return lost(target, job, target.read_settings(found_of(target, target.make_draft(job))))

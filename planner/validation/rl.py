"""Steps of reinforcement learning: inputs of the estimator from rows, and its predictions."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from planner.base.arrays import first
from planner.base.records import record
from planner.base.software_enums import Placement
from planner.base.units import GIB
from planner.confidence.evidence import Conditions
from planner.confidence.intervals import MemoryErrors, memory_errors
from planner.confidence.rl import RL_TABLES, RL_WORK, RlRule
from planner.configurations.rl import RlConfigurations
from planner.errors import SpecError
from planner.estimators.machine import Machine
from planner.estimators.rl.rl_inputs import RlInputs
from planner.estimators.rl.rl_step import RlStep, evaluate_rl
from planner.question.parse_values import parse_value
from planner.question.terms import glossary
from planner.specs.engine import EngineProfile
from planner.specs.framework import FrameworkProfile
from planner.specs.software_profile import engine_on
from planner.specs.training_workload import RlWorkload
from planner.validation.run_tables import MEMORY, Case, Prediction, Run
from planner.validation.spec_library import Library, NotPredicted, model_of, run_cluster
from planner.workloads.rl.space import generating

_TOKENS, _CAP = 256, 4
_VARIATION = 0.8
"""Of answers that are not cut off; published runs give means alone."""
_DEGREES = (1, 2, 4, 8, 16)


@record(kw_only=True)
class RlCase(Case):
    """A step as input of the estimator: its setting, and all possible layouts."""

    framework: FrameworkProfile
    engine: EngineProfile
    rule: RlRule
    work: RlWorkload
    configurations: RlConfigurations

    @property
    def software(self) -> RlRule:
        """The rule of its framework."""
        return self.rule

    @property
    def group(self) -> Hashable:
        """Each is predicted by itself."""
        return id(self)

    @property
    def keys(self) -> tuple[str, ...]:
        """Kind of the run."""
        return self.rule.label, self.gpu_class, self.kind

    @property
    def conditions(self) -> Conditions:
        """GPU and layers: published steps are too few to separate them further."""
        return Conditions(gpu_class=self.gpu_class, work=RL_WORK, layer_kinds=self.kind)

    @property
    def memory_errors(self) -> MemoryErrors:
        """Assumed errors of the memory: one published step measures it."""
        return memory_errors(RL_TABLES, "", "")

    @property
    def inputs(self) -> RlInputs:
        """Return the inputs that all layouts of the case share."""
        return RlInputs(
            machine=Machine(gpu=self.gpu, cluster=self.cluster, catalogue=self.catalogue),
            model=self.model,
            framework=self.framework,
            engine=self.engine,
            workload=self.work,
        )


def rl_case(run: Run, library: Library) -> RlCase:
    """Build the case of a published RL run from its columns.

    Raises NotPredicted if its GPU, model or framework is unknown, or its numbers are impossible.
    """
    gpu = library.gpu(run.text("gpu"))
    if gpu is None:
        raise NotPredicted(f"unknown GPU {run.text('gpu')!r}")
    try:
        framework = library.framework(run.word("framework"))
    except SpecError as error:
        raise NotPredicted(f"unknown framework {run.text('framework')!r}") from error
    if framework.rollouts is None:
        raise NotPredicted(f"{framework.name} generates no answers")
    engine = library.engine(run.word("engine") or framework.rollouts.engine)
    engine = generating(engine_on(engine, gpu, offline=True), framework.rollouts)
    mean = run.count("output_tokens") or 1
    algorithm = run.word("algorithm") or "grpo"
    variation, reference = run.number("output_variation"), run.flag("reference_model")
    try:
        work = RlWorkload(
            prompts_per_step=run.count("prompts_per_step") or 1,
            samples_per_prompt=run.count("samples_per_prompt") or 1,
            input_tokens=run.count("input_tokens") or _TOKENS,
            output_tokens=mean,
            output_variation=_VARIATION if variation is None else variation,
            output_cap=max(run.count("output_cap") or _CAP * mean, mean),
            reference_model=algorithm != "dapo" if reference is None else reference,
            critic=algorithm == "ppo",
            old_logprob=run.flag("old_logprob") is not False,
            micro_batch_tokens=run.count("micro_batch_tokens") or 0,
        )
    except ValueError as error:
        raise NotPredicted(f"impossible step: {error}") from error
    return RlCase(
        model=model_of(run, library),
        gpu=gpu,
        cluster=run_cluster(run, gpu),
        catalogue=library.catalogue,
        framework=framework,
        engine=engine,
        rule=RlRule(label=framework.name, profile=run.word("framework")),
        work=work,
        configurations=_layouts(run, framework, work),
    )


def _layouts(run: Run, framework: FrameworkProfile, work: RlWorkload) -> RlConfigurations:
    """Return the layouts of an RL run: stated sizes, or all usual ones if not stated."""

    def code(name: str, default: str) -> float:
        return float(
            glossary()[name].encode(parse_value(glossary()[name], run.word(name) or default))
        )

    trainers, engines = (
        [run.count(name)] if run.count(name) else [*_DEGREES]
        for name in ("tensor_parallel", "rollout_tensor_parallel")
    )
    if not framework.tensor_parallel:
        trainers = [1]
    placement = code("placement", "colocated")
    has_separate_gpus = placement != Placement.COLOCATED
    return RlConfigurations.of(
        num_gpus=float(run.count("num_gpus") or 1),
        train_gpus=float(run.count("train_gpus") or 0) if has_separate_gpus else 0.0,
        placement=placement,
        staleness=float(run.number("staleness") or 0),
        partial_rollout=bool(run.flag("partial_rollout")),
        tensor_parallel=np.array(trainers, dtype=np.float64)[:, None],
        sequence_parallel=np.array(trainers)[:, None] > 1,
        pipeline_parallel=float(run.count("pipeline_parallel") or 1),
        expert_parallel=float(run.count("expert_parallel") or 1),
        context_parallel=float(run.count("context_parallel") or 1),
        micro_batch_size=1.0,
        global_batch_size=float(run.count("global_batch_size") or work.samples),
        zero_stage=framework.default_zero_stage,
        recompute=code("recompute", "full"),
        rollout_tensor_parallel=np.array(engines, dtype=np.float64),
        rollout_gpu_memory=float(run.number("rollout_gpu_memory") or 0.0),
        rollout_quantization=code("rollout_quantization", "w16a16"),
        offload=code("offload", "none"),
        offload_train=run.flag("offload_train") is not False,
    )


def tuned(case: RlCase) -> RlCase:
    """Return the case with only the fastest layout that fits (or just the fastest).

    Unchanged: the case has one layout, or no layout can be computed.
    """
    if math.prod(case.configurations.shape) == 1:
        return case
    step, shape = evaluate_rl(case.inputs, case.configurations), case.configurations.shape
    time = np.broadcast_to(step.total, shape)
    peak = np.broadcast_to(step.peak_memory, shape)
    fits = (peak <= case.gpu.allocatable_memory) & np.broadcast_to(step.rollout.fits, shape)
    is_computed = np.isfinite(time) & (time > 0)
    choice = is_computed & fits if (is_computed & fits).any() else is_computed
    if not choice.any():
        return case
    best = int(np.argmin(np.where(choice, time, np.inf)))
    return replace(case, configurations=case.configurations.rows(np.array([best])))


def predict_rl_group(cases: Sequence[RlCase]) -> Iterable[Prediction]:
    """Yield the prediction of each case with its fastest layout that fits."""
    for case in map(tuned, cases):
        step = evaluate_rl(case.inputs, case.configurations)
        if not (np.isfinite(step.total) & (step.total > 0)).all():
            yield Prediction(
                case=case, reason="the numbers of the row are too large to be computed"
            )
            continue
        yield _prediction(case, step, case.gpu.allocatable_memory)


def _prediction(case: RlCase, step: RlStep, capacity: float) -> Prediction:
    """Return the times of an RL step [s], its peak memory and the probability that it fits."""
    times = {name: first(seconds) for name, seconds in step.times.items()}
    peak = first(step.peak_memory)
    chance = float(case.memory_errors.fit_probability(predicted=peak, usable=capacity))
    return Prediction(
        case=case,
        values={
            "step_time_s": first(step.total),
            "generate_s": times["generate"],
            "logprob_s": times["old_logprob"] + times["reference"],
            "update_s": times["update"],
            "sync_s": times["sync"] + times["switch"] / 2,
            MEMORY: peak / GIB,
        },
        device_memory=peak,
        needed_memory=peak,
        capacity=capacity,
        fit_probability=chance,
        fits=peak <= capacity,
    )


def rl_choices(run: Run, case: RlCase) -> Iterator[str]:
    """Yield each assumption about an RL run because the run does not state it."""
    if run.number("output_variation") is None:
        yield f"answers vary by {_VARIATION:g} of their mean before they are cut off"
    for name in ("tensor_parallel", "rollout_tensor_parallel"):
        if not run.count(name):
            yield f"{name}: the fastest that has room"
    if not run.count("input_tokens"):
        yield f"prompts of {_TOKENS} tokens"
    if not run.count("output_cap"):
        yield f"answers are cut off at {case.work.output_cap:,} tokens"


def impossible_steps(runs: Sequence[Run], _: Sequence[RlCase]) -> list[str]:
    """Reasons why the layout of each row is impossible: none is checked."""
    return [""] * len(runs)

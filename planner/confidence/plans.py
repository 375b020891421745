"""How sure a prediction for a plan is: the errors of published runs of its kind."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from planner.base.training_names import TrainingObjective
from planner.confidence.classes import (
    basis_words,
    batching,
    gpu_class,
    has_experts,
    lacks_of,
    scale,
    training_task,
)
from planner.confidence.intervals import (
    INFERENCE_TABLES,
    PLACE,
    TRAINING_TABLES,
    TRANSFERRED,
    Confidence,
    MemoryErrors,
    basis_of,
    default_fit_confidence,
    farther,
    interval_of,
    memory_errors,
    runs_at,
)
from planner.confidence.software import (
    framework_rule,
    is_first_run,
    rule_of_profile,
    slower_at_first,
)
from planner.errors import PlannerError
from planner.estimators.training.share import Setting
from planner.question.terms import terms_about
from planner.specs.gpu import is_assumed

if TYPE_CHECKING:
    from planner.estimators.inference.setting import ServingSetting

TRAINING, INFERENCE = "training", "inference"
# Profiles that were fitted to runs whose tensor parallelism goes over nodes.
_MEASURED_OVER_NODES = ("fastertransformer",)


def errors_of_memory(setting: Setting | ServingSetting, num_gpus: int) -> MemoryErrors:
    """How needed over predicted memory of a setting on so many GPUs is distributed."""
    if isinstance(setting, Setting):
        rule = framework_rule(setting.framework.name)
        kind = "moe" if has_experts(setting.model) else "dense"
        size = scale(num_gpus, setting.machine.cluster.gpus_per_node)
        return memory_errors(TRAINING_TABLES, rule.label, kind, size)
    engine = rule_of_profile(setting.engine, setting.machine.gpu.name)
    return memory_errors(INFERENCE_TABLES, engine.label, batching(setting.engine), "")


def sure_share(setting: Setting | ServingSetting, num_gpus: int, confidence: float | None) -> float:
    """The share of the usable memory that a prediction may reach to fit this surely.

    None: as surely as makes both wrong verdicts on published runs as rare.
    """
    tables = TRAINING_TABLES if isinstance(setting, Setting) else INFERENCE_TABLES
    surely = default_fit_confidence(tables) if confidence is None else confidence
    return errors_of_memory(setting, num_gpus).share(surely)


def confidence(
    published: str, setting: object, num_gpus: int, *, spans_nodes: bool = False
) -> Confidence:
    """The confidence in predictions of a setting on so many GPUs.

    ``spans_nodes``: the GPUs that share a layer are of several nodes, of which few runs are.

    ``published`` is what runs of its kind are called: ``training``, or the mode of a run of
    inference (`planner.validation.inference.cases.Mode`).
    """
    if isinstance(setting, Setting):
        return _of_training(setting, num_gpus)
    # A training search does without what serves.
    from planner.estimators.inference.setting import ServingSetting

    if not isinstance(setting, ServingSetting):
        raise TypeError(f"There are no published runs of {setting!r}.")
    return _of_inference(setting, published, spans_nodes=spans_nodes)


def _of_training(setting: Setting, num_gpus: int) -> Confidence:
    """By framework, GPU, number of GPUs, task, dense or experts."""
    rule = framework_rule(setting.framework.name)
    silicon = gpu_class(setting.machine.gpu)
    kind = "moe" if has_experts(setting.model) else "dense"
    size = scale(num_gpus, setting.machine.cluster.gpus_per_node)
    work = setting.workload
    tunes = work.is_frozen or work.training_objective is not TrainingObjective.PRETRAIN
    keys = (rule.label, silicon, size, training_task(tunes=tunes), kind)
    quantities = terms_about("measured", "train")
    known = basis_of(rule, silicon, kind, TRAINING_TABLES)
    basis = basis_of(rule, silicon, kind, TRAINING_TABLES, is_assumed=_is_assumed(setting))
    if work.training_objective.needs_rollouts:  # no published run is an update of this kind
        basis, runs = farther(basis, TRANSFERRED), 0
    else:
        runs = runs_at(rule, setting.machine.gpu.name, TRAINING_TABLES, keys[-2])
    lacks = () if runs else (PLACE,)
    factors = {
        name: interval_of(name, keys, TRAINING_TABLES, known, rule.profile)
        if name == "peak_memory"
        else interval_of(name, keys, TRAINING_TABLES, basis, rule.profile, lacks)
        for name in quantities
    }
    basis, slower = farther(basis, TRANSFERRED) if lacks else basis, slower_at_first(rule.label)
    if slower > 1 and is_first_run(work.tuned, work.training_objective):
        low, high = factors["step_time"]
        factors["step_time"] = low, high * slower
        basis += ", first run" + (" (--tuned otherwise)" if work.tuned is None else "")
    return Confidence(
        factors=factors,
        layout=interval_of("layout", keys, TRAINING_TABLES)[1],
        basis=basis,
        runs=runs,
    )


def _is_assumed(setting: Setting | ServingSetting) -> bool:
    """Whether no publication says what products reach on a setting's GPU."""
    machine = setting.machine
    try:
        provenance = machine.catalogue.load_gpu(machine.gpu.name).provenance
    except PlannerError:
        return False
    return is_assumed(provenance, "gemm.bf16.compute_fraction")


def _of_inference(setting: ServingSetting, mode: str, *, spans_nodes: bool) -> Confidence:
    """By engine, GPU, mode, dense or experts; ``throughput`` is that of rates."""
    rule = rule_of_profile(setting.engine, setting.machine.gpu.name)
    silicon = gpu_class(setting.machine.gpu)
    kind = "moe" if has_experts(setting.model) else "dense"
    keys = (rule.label, silicon, mode, kind)
    quantities = terms_about("measured", "serve")
    known = basis_of(rule, silicon, kind, INFERENCE_TABLES)
    basis = basis_of(rule, silicon, kind, INFERENCE_TABLES, is_assumed=_is_assumed(setting))
    if spans_nodes and rule.profile not in _MEASURED_OVER_NODES:
        basis = farther(basis, TRANSFERRED)
    lacks = () if rule.nearest else lacks_of(rule.profile, setting.engine_version, setting.model)
    runs = runs_at(rule, setting.machine.gpu.name, INFERENCE_TABLES, mode)
    of_speed = lacks if runs else (*lacks, PLACE)
    ends = {
        name: interval_of(name, keys, INFERENCE_TABLES, known, rule.profile, lacks)
        if name == "peak_memory"
        else interval_of(name, keys, INFERENCE_TABLES, basis, rule.profile, of_speed)
        for name in (*quantities, "throughput")
    }
    slow = ends.pop("throughput")
    rates = 1 / slow[1], 1 / slow[0] if slow[0] else math.inf
    return Confidence(
        factors={**ends, "throughput": rates},
        layout=interval_of("layout", keys, INFERENCE_TABLES)[1],
        basis=basis_words(basis if runs else farther(basis, TRANSFERRED), lacks),
        runs=runs,
    )

"""The question and the search space of reinforcement learning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from planner.base.software_enums import Placement
from planner.base.training_aliases import AdapterSync, Algorithm
from planner.configurations.configuration_tables import NAMES
from planner.configurations.enumerate import (
    AXES,
    Factor,
    OpenMesh,
    as_values,
    coded_values,
    refuse_unknown,
    single_axis,
)
from planner.configurations.rl import RlConfigurations, is_misplaced
from planner.errors import SearchSpaceError, SpecError
from planner.estimators.rl.rl_inputs import RlInputs
from planner.optimize.source import Source
from planner.question.names import PLACEMENT, TRAIN_GPUS
from planner.question.request import Request, Settings
from planner.question.terms import glossary, parameter_defaults, terms_about, terms_of
from planner.specs.catalogue import Catalogue
from planner.specs.engine import EngineProfile
from planner.specs.framework import FrameworkProfile
from planner.specs.model import ModelSpec
from planner.specs.search_space import SearchSpace
from planner.specs.software_profile import engine_on
from planner.specs.spec_files import check_spec, text_digest
from planner.specs.training_workload import AdapterSetup, RlWorkload, RolloutProfile
from planner.workloads.assumptions import PlanNotes
from planner.workloads.priced_hardware import gpu_counts
from planner.workloads.rl.results import RlSource, splits
from planner.workloads.serving.question import with_options, with_sequence_limit
from planner.workloads.training.question import (
    adapter_fields,
    parse_member,
    with_framework_adapters,
)
from planner.workloads.training.space import framework_defaults, mesh_of
from planner.workloads.workload import HardwareScenario, WorkloadQuestion

_NODES = "nodes"
"""The value of ``train_gpus`` in a space that tries all multiples of a node."""


RL_ONLY_PARAMETERS = tuple(name for name in RlConfigurations.names() if name not in NAMES)


_LEARNING = terms_about("learning_setting")


def rl_sources(scene: HardwareScenario) -> list[Source]:
    """The one source of an RL search on a scenario; refuses work that the framework cannot do."""
    question, profile, place = scene.question, scene.profile, scene.place
    rollouts = profile.rollouts
    if rollouts is None:
        raise SearchSpaceError(
            f"{profile.name} generates no answers: name a --framework that does (verl, nemo-rl, "
            "openrlhf, slime, trl, prime-rl)."
        )
    if reason := _unsupported_part(question.work, rollouts):
        raise SearchSpaceError(f"{profile.name} {reason}")
    work = with_framework_adapters(question.work, question.request, question.model, profile)
    engine_name = _choose_engine(scene, profile.name, rollouts)
    engine = place.machine.catalogue.load_engine(engine_name).spec
    rollout = scene.others.get("rollout_gpu")
    generates = (rollout or place).machine.gpu
    engine = engine_on(engine, generates, offline=True)
    engine = with_options(generating(engine, rollouts), question.request)
    inputs = RlInputs(
        machine=place.machine,
        model=question.model,
        framework=profile,
        engine=engine,
        workload=work,
        engine_word=engine_name,
        rollout_machine=None if rollout is None else rollout.machine,
    )
    batch = question.request.global_batch_size or question.work.samples
    settings = {"global_batch_size": batch, **question.request.settings}
    settings |= framework_defaults(scene, question.work)
    if inputs.context.has_two_types and question.space[0] == SINGLE:
        settings.setdefault(PLACEMENT, separate_placement(rollouts))
    return [
        RlSource(
            inputs=inputs,
            mesh=rl_mesh(inputs, scene.space, settings, question.counts),
            counts=question.counts,
            site=place.site,
            rollout_site=None if rollout is None else rollout.site,
        )
    ]


def separate_placement(rollouts: RolloutProfile) -> str:
    """The framework's first placement of trainer and engine on GPUs of their own."""
    others = [word for word in rollouts.placements if word != Placement.COLOCATED.word]
    return others[0] if others else Placement.SEPARATE.word


def _choose_engine(scene: HardwareScenario, framework: str, rollouts: RolloutProfile) -> str:
    """The name of the engine that generates answers; default: the framework's first."""
    engine_names = (rollouts.engine, *rollouts.engines)
    engine_name = scene.question.request.engine or rollouts.engine
    if not isinstance(engine_name, str):
        raise SearchSpaceError("One engine generates the answers: name one with --engine.")
    catalogue = scene.place.machine.catalogue
    by_name = {catalogue.load_engine(spec_name).spec.name: spec_name for spec_name in engine_names}
    spec_name = by_name.get(engine_name, engine_name)
    if spec_name not in engine_names:
        raise SearchSpaceError(
            f"{framework} does not generate with {engine_name}: it has "
            f"{' and '.join(engine_names)}."
        )
    return spec_name


def generating(engine: EngineProfile, rollouts: RolloutProfile) -> EngineProfile:
    """The engine profile with the framework's limit of concurrent answers, if there is one."""
    return with_sequence_limit(engine, rollouts.max_num_seqs) if rollouts.max_num_seqs else engine


def _unsupported_part(work: RlWorkload, rollouts: RolloutProfile) -> str:
    """The reason why a framework cannot train this work on generated answers; empty: it can."""
    if work.is_frozen and work.adapter not in rollouts.adapters:
        supported = " and ".join(rollouts.adapters) or "no adapters"
        return (
            f"trains {supported} on generated answers, not {work.adapter}: --framework all "
            "compares those that do."
        )
    if work.critic and not rollouts.critic:
        return (
            f"trains no critic, which {work.algorithm} needs here: choose --algorithm grpo, rloo "
            "or dapo without --critic, or compare others with --framework all."
        )
    return ""


def trains_on_answers(question: WorkloadQuestion, framework: FrameworkProfile) -> bool:
    """Whether a framework generates answers and can train the requested step on them."""
    rollouts = framework.rollouts
    return rollouts is not None and not _unsupported_part(question.work, rollouts)


def rl_mesh(
    inputs: RlInputs, space: SearchSpace, settings: Settings, counts: Sequence[int]
) -> OpenMesh[RlConfigurations]:
    """All combinations of the values of trainer, engine and placement parameters.

    Placements that rules exclude are left out if there are others.

    Raises SearchSpaceError if a parameter or a value is unknown, or there is no value left.
    """
    kind = RlConfigurations
    refuse_unknown(space, settings, kind.names(), derived=("rollout_gpus", "data_parallel"))
    parameter_values = {**space.parameters, **settings}
    if coded_values(
        "micro_batch_size", as_values(parameter_values.get("micro_batch_size", 1), {})
    ) != [1]:
        raise SearchSpaceError(
            "micro_batch_size: answers are packed into micro-batches of so many tokens: give "
            "--micro-batch-tokens."
        )
    defaults = parameter_defaults("rl")
    split = _splits(inputs, parameter_values, counts)
    rl_names = [name for name in RL_ONLY_PARAMETERS if name not in split]
    trainer = mesh_of(
        replace(space, parameters={n: v for n, v in space.parameters.items() if n in NAMES}),
        {n: v for n, v in settings.items() if n in NAMES},
        num_gpus=counts,
        model=inputs.model,
        framework=inputs.framework,
        workload=inputs.packed.workload,
    )
    placed_names = (*split, "micro_batch_size")
    axes: list[list[Factor]] = [[split]]
    axes += [
        [{name: trainer.values(name)} for name in axis if name not in placed_names] for axis in AXES
    ]
    axes.append([single_axis(kind, "micro_batch_size", [1])])
    values = {
        name: coded_values(name, as_values(parameter_values.get(name, defaults[name]), {}))
        for name in rl_names
    }
    axes.append([single_axis(kind, name, values[name]) for name in rl_names])
    return OpenMesh(kind=kind, axes=[axis for axis in axes if axis])


def _splits(inputs: RlInputs, parameter_values: Settings, counts: Sequence[int]) -> Factor:
    """Columns of placements and numbers of trainer GPUs, without rows that rules exclude."""
    defaults = parameter_defaults("rl")
    names = (PLACEMENT, *_LEARNING)
    values = {
        name: as_values(parameter_values.get(name, defaults[name]), {})
        for name in (TRAIN_GPUS, *names)
    }
    is_open, node = _NODES in values[TRAIN_GPUS], inputs.machine.cluster.gpus_per_node
    train_gpus = [0.0] if is_open else coded_values(TRAIN_GPUS, values[TRAIN_GPUS])
    choices = [coded_values(name, values[name]) for name in names]
    rows = []
    for count, (placement, *others) in product(counts, product(*choices)):
        trains = train_gpus
        if is_open and placement != Placement.COLOCATED:
            trains = splits(count, node)
        rows += [(count, train, placement, *others) for train in trains]
    columns = np.array(rows, dtype=np.float64).T
    heads = ("num_gpus", TRAIN_GPUS, *names)
    factor = {n: RlConfigurations.cast(n, column) for n, column in zip(heads, columns, strict=True)}
    possible = ~is_misplaced(factor, inputs.context)
    if possible.any():
        factor = {name: column[possible] for name, column in factor.items()}
    return factor


SINGLE = "rl_single"


_SPACE = "rl"


_TOKENS = 1024


_USUAL = {
    **{name: int(glossary()[name].default) for name in terms_about("rl_step")},
    **dict.fromkeys(terms_about("length", "rl"), _TOKENS),
}


_STEPS = 1000


_CAP = 4


# Of answers to questions of mathematics and code.
_VARIATION = 0.8


ADAPTER_FIELDS = AdapterSetup.__dataclass_fields__


def make_rl_question(request: Request, catalogue: Catalogue, notes: PlanNotes) -> WorkloadQuestion:
    """Read the model, the RL step and the search space of a request.

    Raises SpecError or SearchSpaceError if something is unknown, faulty or impossible.
    """
    if request.num_gpus is None:
        raise SearchSpaceError("Give the number of GPUs with --gpus.")
    model = catalogue.load_model(str(request.model))
    notes.copy(str(request.model), model.name)
    notes.digests[f"model {model.name}"] = text_digest(repr(model))
    space_name = request.space
    return WorkloadQuestion(
        request=request,
        model=model,
        work=_make_step(request, model, notes),
        counts=tuple(sorted(set(gpu_counts(request.num_gpus)))),
        space=(_SPACE, "default") if space_name is None else (space_name, None),
        profile=("nemo-rl", "most published steps use it; --framework all compares")
        if space_name in (None, SINGLE)
        else (None, "of the space"),
    )


def _make_step(request: Request, model: ModelSpec, notes: PlanNotes) -> RlWorkload:
    """The RL step of a request, checked; default values are added to ``notes``."""
    values: dict[str, object] = {
        name: getattr(request, name)
        for name in terms_of("rl", "question")
        if name in RlWorkload.__dataclass_fields__
    }
    for name, default in _USUAL.items():
        if values[name] is None:
            values[name] = default
            notes.defaults[name] = f"{default:,} (default)"
    mean = int(str(values["output_tokens"]))
    if values["output_cap"] is None:
        values["output_cap"] = cap = _CAP * mean
        notes.defaults["output_cap"] = f"{cap:,} ({_CAP} times the mean)"
    if not request.output_variation:
        values["output_variation"] = _VARIATION
        notes.defaults["output_variation"] = (
            f"{_VARIATION:g} (usual of answers that reason; an --output-cap at the mean makes "
            "all equally long)"
        )
    algorithm = parse_member("algorithm", str(request.algorithm), Algorithm)
    if values["reference_model"] is None:
        values["reference_model"] = algorithm is not Algorithm.DAPO
    if values["critic"] is None:
        values["critic"] = algorithm is Algorithm.PPO
    adapter = adapter_fields(request, notes.defaults)
    values = {name: value for name, value in values.items() if name not in ADAPTER_FIELDS} | adapter
    values["adapter_sync"] = _adapter_sync(request, is_frozen=adapter["adapter"] != "none")
    values["micro_batch_tokens"] = request.micro_batch_tokens or 0
    values["steps"] = request.max_steps or _STEPS
    if request.max_steps is None:
        notes.defaults["max_steps"] = f"{_STEPS:,}, for which time and cost are shown (default)"
    work = check_spec(RlWorkload, values, where="the step")
    _check_step(work, model)
    return work


def _adapter_sync(request: Request, *, is_frozen: bool) -> AdapterSync | None:
    """The weights that a trainer with LoRA adapters sends to the engine; None: not specified."""
    requested = request.adapter_sync
    if requested is None:
        return None
    if not is_frozen:
        raise SpecError("adapter_sync needs an adapter: give --adapter lora.")
    return parse_member("adapter_sync", requested, AdapterSync)


def _check_step(work: RlWorkload, model: ModelSpec) -> None:
    """Refuse an RL step that the model cannot run: no generation, or too long sequences."""
    if not any(attention.causal for attention in model.attentions):
        raise SpecError(f"{model.name} generates no answers: name a model that does.")
    if work.output_cap < work.output_tokens:
        raise SpecError(
            f"Answers of {work.output_tokens:,} tokens on average cannot be cut off at "
            f"{work.output_cap:,}: give an --output-cap of {work.output_tokens:,} or more, or "
            "fewer --output-tokens."
        )
    if 0 < work.micro_batch_tokens < work.longest:
        raise SpecError(
            f"A micro-batch of {work.micro_batch_tokens:,} tokens has no room for the longest "
            f"sequence, {work.input_tokens:,} + {work.output_cap:,} tokens: give "
            f"--micro-batch-tokens {work.longest} or more, or a lower --output-cap."
        )
    limit = model.max_position_embeddings
    if limit is not None and work.longest > limit:
        raise SpecError(
            f"{model.name} has positions for {limit:,} tokens, not {work.longest:,} (prompt and "
            f"longest answer): give --output-cap {limit - work.input_tokens} or less."
        )

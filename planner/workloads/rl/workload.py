"""Reinforcement learning as a workload: the question, the configurations, the words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from planner.base import formatting
from planner.base.arrays import first
from planner.base.csv_cells import Value, number_of_row
from planner.base.enums import AdapterKind
from planner.base.formatting import format_large
from planner.base.software_enums import Placement
from planner.base.training_aliases import AdapterSync, Algorithm
from planner.configurations.configuration_tables import DEGREES, NAMES, Reason, format_value
from planner.configurations.enumerate import (
    AXES,
    Factor,
    OpenMesh,
    as_values,
    coded_values,
    refuse_unknown,
    single_axis,
)
from planner.configurations.rl_configurations import ROLLOUT, RlConfigurations
from planner.configurations.rl_rules import (
    RL_ONLY_RULES,
    RL_REJECTING,
    ROLLOUT_CACHE,
    RlContext,
    is_misplaced,
)
from planner.errors import SearchSpaceError, SpecError
from planner.estimators.ideal_hardware import ideal_framework
from planner.estimators.inference.continuous_batching import decode_batch
from planner.estimators.inference.engine_step import step_time
from planner.estimators.rl.rl_inputs import RlInputs
from planner.estimators.rl.rl_step import TRAINER_PHASES
from planner.estimators.training.flops import adapter_parameter_count
from planner.optimize.source import Candidates, Source
from planner.question.names import PLACEMENT, TRAIN_GPUS
from planner.question.request import Request
from planner.question.terms import glossary, parameter_defaults, terms_about, terms_of
from planner.specs.catalogue import Catalogue
from planner.specs.engine import EngineProfile
from planner.specs.framework import FrameworkProfile
from planner.specs.model import ModelSpec
from planner.specs.rollouts import RlWorkload, RolloutProfile
from planner.specs.search_space import SearchSpace
from planner.specs.software_profile import engine_on
from planner.specs.spec_files import check_spec, text_digest
from planner.specs.training_workload import AdapterSetup
from planner.workloads.assumptions import PlanNotes
from planner.workloads.priced_hardware import gpu_counts
from planner.workloads.rl.results import RlRuns, RlSource, splits
from planner.workloads.serving.space import with_options, with_sequence_limit
from planner.workloads.serving.workload import timed_inference
from planner.workloads.training.question import (
    adapter_answers,
    adapter_fields,
    format_adapter,
    with_expert_adapters,
)
from planner.workloads.training.workload import (
    default_notes,
    framework_defaults,
    mesh_of,
    source_defaults,
    timed_training,
)
from planner.workloads.workload import (
    ALL_MODULES,
    HardwareScenario,
    ResultWording,
    TimedPart,
    TimedStep,
    Workload,
    WorkloadQuestion,
    evaluate_single,
)

SINGLE = "rl_single"
_SPACE = "rl"
_TOKENS = 1024
_USUAL = {
    **{name: int(glossary()[name].default) for name in terms_about("rl_step")},
    **dict.fromkeys(terms_about("length", "rl"), _TOKENS),
}
_STEPS = 1000
_LONGEST = ("output_cap",)
_CAP = 4
# Of answers to questions of mathematics and code.
_VARIATION = 0.8
_NODES = "nodes"
"""The value of ``train_gpus`` in a space that tries all multiples of a node."""
_RL_ONLY_PARAMETERS = tuple(name for name in RlConfigurations.names() if name not in NAMES)
_ADAPTED = AdapterSetup.__dataclass_fields__
_LEARNING = terms_about("learning_setting")


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
        profile=("nemo-rl", "most published steps are of it; --framework all compares")
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
    algorithms = ", ".join(Algorithm)
    if str(request.algorithm) not in list(Algorithm):
        raise SpecError(f"Unknown algorithm {request.algorithm!r}. Known: {algorithms}.")
    algorithm = Algorithm(str(request.algorithm))
    if values["reference_model"] is None:
        values["reference_model"] = algorithm is not Algorithm.DAPO
    if values["critic"] is None:
        values["critic"] = algorithm is Algorithm.PPO
    adapter = adapter_fields(request, notes.defaults)
    values = {name: value for name, value in values.items() if name not in _ADAPTED} | adapter
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
    if requested not in list(AdapterSync):
        raise SpecError(f"Unknown adapter_sync {requested!r}. Known: {', '.join(AdapterSync)}.")
    return AdapterSync(requested)


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


def _sources(scene: HardwareScenario) -> list[Source]:
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
    work = with_expert_adapters(question.work, question.request, question.model, profile)
    engine_name = _choose_engine(scene, profile.name, rollouts)
    engine = place.machine.catalogue.load_engine(engine_name).spec
    engine = engine_on(engine, place.machine.gpu, offline=True)
    engine = with_options(generating(engine, rollouts), question.request)
    inputs = RlInputs(
        machine=place.machine,
        model=question.model,
        framework=profile,
        engine=engine,
        workload=work,
        engine_word=engine_name,
    )
    batch = question.request.global_batch_size or question.work.samples
    settings = {"global_batch_size": batch, **question.request.settings}
    settings |= framework_defaults(scene, question.work)
    return [
        RlSource(
            inputs=inputs,
            mesh=rl_mesh(inputs, scene.space, settings, question.counts),
            counts=question.counts,
            site=place.site,
        )
    ]


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


def _suits(question: WorkloadQuestion, framework: FrameworkProfile) -> bool:
    """Whether a framework generates answers and can train the requested step on them."""
    rollouts = framework.rollouts
    return rollouts is not None and not _unsupported_part(question.work, rollouts)


def rl_mesh(
    inputs: RlInputs, space: SearchSpace, settings: Mapping[str, object], counts: Sequence[int]
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
    rl_names = [name for name in _RL_ONLY_PARAMETERS if name not in split]
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


def _splits(
    inputs: RlInputs, parameter_values: Mapping[str, object], counts: Sequence[int]
) -> Factor:
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
    context = RlContext(rollouts=inputs.rollouts, workload=inputs.workload)
    possible = ~is_misplaced(factor, context)
    if possible.any():
        factor = {name: column[possible] for name, column in factor.items()}
    return factor


def rl_steps(candidates: Candidates) -> Mapping[str, TimedStep]:
    """The timed RL step by phase, and the optimizer and decode steps in it; else empty."""
    if not isinstance(candidates, RlRuns):
        return {}
    step, total = candidates.step, first(candidates.step_time)
    kinds = {"generate": "decode", **dict.fromkeys(TRAINER_PHASES, "training")}
    parts = [
        TimedPart.of(name, ALL_MODULES, {name: seconds}, (), part=name, like=kinds.get(name, ""))
        for name, seconds in step.shown_times().items()
    ]
    serving, engine = step.inputs.serving, step.rollout.configurations
    decode = step_time(serving, engine, decode_batch(serving, engine.concurrency), decoding=True)
    return {
        "step": TimedStep(seconds=total, parts=tuple(parts)),
        "training": timed_training(step.trainer.time, "training"),
        "decode": replace(timed_inference(decode), software=serving.engine.name),
    }


def _reproducing_answers(source: Source) -> dict[str, Value]:
    """The answers, by question, with which a plan's open values are reproduced."""
    if not isinstance(source, RlSource):
        raise TypeError(f"{source} is no reinforcement learning.")
    work, questions = source.inputs.workload, terms_of("rl", "question")
    answers: dict[str, Value] = {
        name: getattr(work, name)
        for name in questions
        if hasattr(work, name) and name not in _ADAPTED
    }
    if not work.micro_batch_tokens:
        del answers["micro_batch_tokens"]
    del answers["adapter_sync"]
    if work.is_frozen:
        answers |= adapter_answers(work) | {"adapter": str(work.adapter)}
        answers["adapter_sync"] = str(source.inputs.adapter_sync)
    answers |= {"algorithm": str(work.algorithm), "max_steps": work.steps}
    answers |= {"gpu": source.gpu, "framework": source.profile}
    return answers | {
        "engine": source.inputs.engine_word,
        "reliability": source.site.reliability.name,
    }


def _question_lines(inputs: RlInputs) -> list[str]:
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


_ENGINE = {"tp": f"{ROLLOUT}tensor_parallel", "ep": f"{ROLLOUT}expert_parallel"}


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
    gpus = f"{train:,.0f}+{rollout:,.0f}" if has_separate_gpus else f"{rollout:,.0f}"
    terms = terms_of("train", "parameter")
    sizes = {terms[name].short: number_of_row(row, name) for name in DEGREES if name in row}
    degrees = (
        " ".join(f"{abbreviation}{n:,.0f}" for abbreviation, n in sizes.items() if n > 1) or "dp"
    )
    split = " ".join(
        f"{abbreviation}{number_of_row(row, name):,.0f}"
        for abbreviation, name in _ENGINE.items()
        if number_of_row(row, name) > 1
    )
    number = rollout / number_of_row(row, _ENGINE["tp"])
    return f"{gpus}: {degrees} / {number:,.0f} x {split or 'tp1'}"


def _format_broken_rule(candidates: Candidates, rule: str) -> str:
    """The values that break a rule, and the nearest value that satisfies it, as text."""
    if not isinstance(candidates, RlRuns):
        raise TypeError(f"{candidates!r} is no reinforcement learning.")
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
        f"staleness {first(c.staleness):g} of {placement}",
        f"{name} can in {', '.join(rollouts.partial) or 'no placement'}",
        f"{tp:,.0f} of {generates:,.0f} GPUs",
        f"{batch:,.0f} of {inputs.workload.samples:,}",
        f"{batch:,.0f} sequences on {first(c.data_parallel):g} copies",
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


RL = Workload(
    name="rl",
    profile_kind="framework",
    single=SINGLE,
    ask=make_rl_question,
    sources=_sources,
    objectives=lambda _: ("step_time", "memory_headroom"),
    ideal=ideal_framework,
    reproducing_answers=_reproducing_answers,
    usual=default_notes,
    unset_defaults=source_defaults,
    evaluate_once=evaluate_single,
    adapters=(AdapterKind.NONE, AdapterKind.LORA, AdapterKind.QLORA),
    suits=_suits,
    comparison_columns=("time_to_train_days", "cost_usd", "num_gpus"),
    timed=rl_steps,
    lengths=(*terms_about("length", "rl"), *_LONGEST),
    longest=_LONGEST,
    batch="",
    wording=ResultWording(
        noun="plan",
        question_lines=_question_lines,
        format_short=plan_words,
        format_brief=plan_words,
        layout=layout,
        in_layout=(*DEGREES[:-1], *_RL_ONLY_PARAMETERS[:4], *_ENGINE.values(), "rollout_gpus"),
        broken_rule_text=_format_broken_rule,
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

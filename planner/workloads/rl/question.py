"""The question of reinforcement learning: the model, the step and its defaults."""

from __future__ import annotations

from planner.base.training_aliases import AdapterSync, Algorithm
from planner.errors import SearchSpaceError, SpecError
from planner.question.request import Request
from planner.question.terms import glossary, terms_about, terms_of
from planner.specs.catalogue import Catalogue
from planner.specs.model import ModelSpec
from planner.specs.rollouts import RlWorkload
from planner.specs.spec_files import check_spec, text_digest
from planner.specs.training_workload import AdapterSetup
from planner.workloads.assumptions import PlanNotes
from planner.workloads.priced_hardware import gpu_counts
from planner.workloads.training.question import (
    adapter_fields,
)
from planner.workloads.workload import (
    WorkloadQuestion,
)

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
    algorithms = ", ".join(Algorithm)
    if str(request.algorithm) not in list(Algorithm):
        raise SpecError(f"Unknown algorithm {request.algorithm!r}. Known: {algorithms}.")
    algorithm = Algorithm(str(request.algorithm))
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

"""The question of a service: requests, lengths, drafts and engine options, with defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from planner.base.enums import AdapterTargets, AttentionKind, CacheType, Quantization
from planner.base.training_aliases import served_targets
from planner.confidence.medians import Work, median_slowdown
from planner.errors import SearchSpaceError, SpecError, did_you_mean
from planner.estimators.inference.batch_share import ServingInputs
from planner.formulas.routing import lru_characteristic_draws, zipf_shares
from planner.question.request import Request
from planner.question.terms import terms_about, terms_of
from planner.specs.catalogue import Catalogue, stored_types
from planner.specs.engine import ATTENTION_FFN_ENGINES, EngineProfile
from planner.specs.image_processing import audio_tokens
from planner.specs.model import ModelSpec
from planner.specs.serving_workload import (
    DraftMethod,
    ServingWorkload,
    acceptance,
    embedder_of,
    head_of,
)
from planner.specs.spec_files import check_spec, text_digest
from planner.specs.validated import replace_unvalidated
from planner.workloads.assumptions import PlanNotes
from planner.workloads.image_inputs import image_fields, image_tokens
from planner.workloads.priced_hardware import gpu_counts
from planner.workloads.serving.hit_rates import hit_rate_curve_of, is_drawn
from planner.workloads.serving.results import (
    AGGREGATED,
    ATTENTION_FFN,
    DISAGGREGATED,
    MODES,
    POOLED,
)
from planner.workloads.serving.traffic import arrivals_of, traffic_defaults
from planner.workloads.workload import WorkloadQuestion

# Of formats with the bits of integer activations in their name.
CACHES_OF_ACTIVATIONS = {
    Quantization.W8A8: CacheType.INT8,
    Quantization.W4A8: CacheType.INT8,
    Quantization.W4A4: CacheType.INT4,
}


def caches_activations(request: Request) -> bool:
    """True if the KV cache gets the number format of the activations, as rooflines assume.

    False if an engine is named: engines cache in 16 bit unless another format is specified.
    """
    return request.at_shares and request.engine is None


def _cache_note(request: Request) -> Mapping[str, str]:
    """A note on the KV-cache format that follows from the activations; empty if it does not."""
    quantization = request.settings.get("quantization")
    if not isinstance(quantization, str) or not caches_activations(request):
        return {}
    format_name = Quantization.canonical_word(quantization)
    cache = {
        code.word: cache_format.word for code, cache_format in CACHES_OF_ACTIVATIONS.items()
    }.get(format_name)
    if cache is None or request.space != SINGLE or "kv_cache" in request.settings:
        return {}
    return {
        "kv_cache": f"{cache} (as many bits as the activations of {format_name}, at a roofline)"
    }


def serving_slowdown(request: Request) -> float:
    """Time of an engine step over that of a set-up tuned as vendors' benchmarks.

    1 if the request sets efficiencies, and for static batches, whose published runs agree.
    """
    is_set = request.at_shares or request.memory_efficiency is not None
    if request.workload != "serve" or request.tuned or is_set:
        return 1.0
    return median_slowdown(Work.SERVING).slower


def _slowdown_note(request: Request) -> dict[str, str]:
    """A note on the slowdown of a server that is not said to be tuned; empty without one."""
    slowdown = serving_slowdown(request)
    if slowdown == 1.0:
        return {}
    publishers = median_slowdown(Work.SERVING).publishers
    return {
        "tuned": f"no: an untuned server takes {slowdown:g} times as long as vendors' "
        f"benchmarks ({publishers} publishers; --tuned: as those)"
    }


def format_weight_formats(model: ModelSpec) -> str:
    """The types of a model's published weights in words."""
    dense, experts = stored_types(model)
    return f"{dense}, experts {experts}"


SINGLE = "serve_single"
# Tokens of a step on large GPUs (get_batch_defaults of vllm/engine/arg_utils.py), and GPUs of a
# node: the ranks of tensor parallelism that latent caches have copies on.
_LONG_PROMPT = 8192
_CACHE_PARTS = 8


_SPACE = "serve"


USUAL_TOKENS = 1024
"""Default tokens of a prompt and of an answer."""


_VARIATION = 1.0
"""Of lengths: services have 0.96 to 3.1 of prompts, 0.7 to 3.3 of answers (``lengths.csv``)."""


def parse_modes(request: Request) -> list[str]:
    """The requested serving modes; default: ``aggregated``, and ``disaggregated`` in a search."""
    defaults = (AGGREGATED,) if request.space == SINGLE else (AGGREGATED, DISAGGREGATED)
    modes = [request.mode] if isinstance(request.mode, str) else list(request.mode or defaults)
    for text in modes:
        if text not in MODES:
            is_short = text.lower() == "afd"
            hint = f" Did you mean {ATTENTION_FFN}?" if is_short else did_you_mean(text, MODES)
            raise SearchSpaceError(f"Unknown mode {text!r}.{hint} Known: {', '.join(MODES)}.")
    if request.prefill_gpu is not None and not {*modes} & {*POOLED}:
        raise SearchSpaceError("--prefill-gpu is for --mode disaggregated.")
    return [mode for mode in MODES if mode in modes]


def make_serving_question(
    request: Request, catalogue: Catalogue, notes: PlanNotes
) -> WorkloadQuestion:
    """Read the model, the requests and the search space of a serving request.

    Raises SpecError or SearchSpaceError if something is unknown, faulty or impossible, or neither
    GPUs nor a request rate are specified.
    """
    counts = () if request.num_gpus is None else tuple(sorted(set(gpu_counts(request.num_gpus))))
    if not counts and request.request_rate is None and request.space != SINGLE:
        raise SearchSpaceError(
            "Give the number of GPUs with --gpus, or the requests per second to serve with "
            "--request-rate; planner size --power or --budget finds how many a bound allows."
        )
    model = catalogue.load_model(str(request.model))
    notes.copy(str(request.model), model.name)
    notes.digests[f"model {model.name}"] = text_digest(repr(model))
    work = _make_workload(request, model, notes)
    if work.embeds:
        _refuse_answer_options(request)
        model = embedder_of(model)
    elif not any(attention.causal for attention in model.attentions):
        raise SpecError(
            f"{model.name} generates nothing: give --output-tokens 0, and the prompts are embedded "
            "or scored."
        )
    draft = draft_of(request, model, catalogue)
    if request.draft_model is not None and draft is not None:
        notes.digests[f"model {draft.name}"] = text_digest(repr(draft))
    published = model.quantization, model.expert_quantization
    is_set = {"quantization", "expert_quantization"} & set(request.settings)
    if any(published) and not is_set and request.precision is None:
        is_copy = notes.catalogue.copied_from(str(request.model))
        source = "the name of the copy" if is_copy else f"published weights of {model.name}"
        notes.defaults["quantization"] = f"{format_weight_formats(model)} ({source})"
    notes.defaults |= {**_cache_note(request), **_slowdown_note(request)}
    if ATTENTION_FFN in parse_modes(request):
        notes.defaults["mode"] = (
            f"{ATTENTION_FFN}, as if the engine had it. {ATTENTION_FFN_ENGINES}"
        )
    return WorkloadQuestion(
        request=request,
        model=model,
        work=work,
        counts=counts,
        space=(_SPACE, "default") if request.space is None else (request.space, None),
    )


def _add_audio_tokens(
    request: Request, model: ModelSpec, lengths: dict[str, Any], notes: PlanNotes
) -> None:
    """Add the tokens of a prompt's audio to ``lengths["input_tokens"]``, unless it is set.

    Raises SpecError if the model has no audio tower, or the sound is longer than the prompt.
    """
    if model.audio_tower is None:
        raise SpecError(
            f"{model.name} has no audio tower that is described: --audio-seconds needs a model "
            "whose file has an audio_tower."
        )
    tokens = audio_tokens(model.audio_tower, request.audio_seconds)
    sound_text = f"{request.audio_seconds:g} s of sound are {tokens:,} tokens"
    if request.input_tokens is None:
        lengths["input_tokens"] += tokens
        text = f"{USUAL_TOKENS:,} of text (default); {sound_text}"
        notes.defaults["input_tokens"] = f"{lengths['input_tokens']:,}: {text}"
    elif tokens > request.input_tokens:
        raise SpecError(
            f"{sound_text} of the {request.input_tokens:,} of a prompt: give a longer one, or "
            "less sound."
        )


def _refuse_answer_options(request: Request) -> None:
    """Refuse options that need generated tokens, in a request without output tokens."""
    if request.workload != "serve":
        raise SpecError(
            "A static batch generates: prompts that are embedded or scored are served "
            "(--workload serve)."
        )
    answer_terms = terms_of("serve", "answer")
    for name in (*request.constraints, *request.objectives):
        if name in answer_terms or name == "throughput":
            raise SpecError(
                f"{name} is of generated tokens, and there are none with --output-tokens 0: "
                "give request_latency, prompt_throughput_per_gpu or cost_per_million_tokens."
            )
    if request.draft_tokens:
        raise SpecError("Only generated tokens are drafted: leave out --draft-tokens.")


def _make_workload(request: Request, model: ModelSpec, notes: PlanNotes) -> ServingWorkload:
    """The serving workload of a request; default lengths and rates are added to ``notes``."""
    lengths: dict[str, Any] = {}
    for name in terms_about("length", "serve"):
        num_tokens = getattr(request, name)
        if num_tokens is None:
            notes.defaults[name] = f"{USUAL_TOKENS:,} (default)"
        lengths[name] = USUAL_TOKENS if num_tokens is None else num_tokens
    images = image_fields(request, model, request.input_tokens, notes)
    if images and request.input_tokens is None:
        lengths["input_tokens"] += image_tokens(images)
        text = f"{USUAL_TOKENS:,} of text (default), and those of the images"
        notes.defaults["input_tokens"] = f"{lengths['input_tokens']:,}: {text}"
    if request.audio_seconds:
        _add_audio_tokens(request, model, lengths, notes)
    fields_of = {field.name for field in fields(ServingWorkload)} - {*terms_about("image")}
    questions = [name for name in terms_of("serve", "question") if name in fields_of]
    values = {name: getattr(request, name) for name in questions}
    values["prefix_cache_hit_rate"] = request.prefix_cache_hit_rate or 0.0
    values |= (variations := variations_of(request))
    for name, variation in variations.items():
        if getattr(request, name) is None and variation:
            notes.defaults[name] = f"{variation:g} (as measured of services; 0: all as long)"
    values["lora_rank"] = request.lora_rank or 0
    values["lora_targets"] = _lora_targets(request)
    values["draft_method"] = method = _draft_method(request, model)
    values["decode_context_parallel"] = _cache_split(request)
    drafted, steps = _draft_tokens(request), request.draft_steps
    values["draft_tokens"] = drafted
    if drafted and steps and steps > drafted:
        raise SpecError(
            f"--draft-steps {steps} are drafted one after the other, of {drafted} with "
            "--draft-tokens: give no more."
        )
    if request.acceptance_rate is None:
        values["acceptance_rate"] = 0.0
        if drafted:
            published = acceptance(method, is_tree=(steps or drafted) < drafted)
            values["acceptance_rate"] = published.assumed
            notes.defaults["acceptance_rate"] = (
                f"{published.assumed:g} (as published for {method or 'drafts'}; {published.low:g} "
                f"to {published.high:g} is usual)"
            )
    values["arrivals"] = arrivals_of(request, drawn=is_drawn(request.router))
    notes.defaults.update(traffic_defaults(request))
    workload = check_spec(ServingWorkload, {**values, **lengths, **images}, where="the workload")
    if request.redundant_experts and not model.num_experts:
        raise SpecError(f"{model.name} has no experts to copy: leave out --redundant-experts.")
    if workload.shared_prefix_tokens > workload.input_tokens:
        raise SpecError(
            f"--shared-prefix-tokens {workload.shared_prefix_tokens:,} are part of the prompts, "
            f"which have {workload.input_tokens:,} with --input-tokens: give no more."
        )
    if request.workload == "serve":
        workload = replace_unvalidated(workload, reuse=hit_rate_curve_of(request, workload))
    limit, max_model_len = model.max_position_embeddings, workload.max_model_len
    length = workload.input_tokens + workload.output_tokens
    if max_model_len is not None and length > max_model_len:
        raise SpecError(
            f"Requests of {length:,} tokens ({workload.input_tokens:,} in, "
            f"{workload.output_tokens:,} out) are longer than the longest that the engine takes, "
            f"{max_model_len:,}: give fewer with --input-tokens and --output-tokens, or raise "
            "that limit."
        )
    if limit is not None and length > limit:
        raise SpecError(
            f"{model.name} has positions for {limit:,} tokens, not {length:,} "
            f"({workload.input_tokens:,} in, {workload.output_tokens:,} out): give fewer, or a "
            "model file with more max_position_embeddings."
        )
    return workload


def variations_of(request: Request) -> dict[str, float]:
    """Coefficients of variation of input and output lengths; default: 1 to serve, 0 for a batch."""
    varies = request.workload == "serve" and not request.equal_lengths
    defaults = dict.fromkeys(terms_about("length_variation"), _VARIATION * varies)
    if request.output_tokens == 0:
        defaults["output_variation"] = 0.0
    answers = {name: getattr(request, name) for name in defaults}
    return {name: defaults[name] if value is None else value for name, value in answers.items()}


def cache_splits(request: Request, model: ModelSpec) -> list[int | None]:
    """Return the numbers of ranks that a search tries for parts of caches; [None]: only one.

    Of models with latent attention every rank of tensor parallelism holds a copy of the cache,
    which limits the requests at once where prompts are long.
    """
    is_latent = all(each.kind is AttentionKind.LATENT for each in model.attentions)
    is_long = (request.input_tokens or 0) > _LONG_PROMPT
    if request.space == SINGLE or not (is_latent and is_long):
        return [None]
    return [1, _CACHE_PARTS]


def _cache_split(request: Request) -> int:
    """Return the number of ranks that hold parts of caches; of several the largest."""
    split = request.decode_context_parallel or 1
    return split if isinstance(split, int) else max(split)


def _draft_tokens(request: Request) -> int:
    """Drafted tokens of a step; the largest of several numbers."""
    draft_tokens = request.draft_tokens
    return draft_tokens if isinstance(draft_tokens, int) else max(draft_tokens)


def _draft_method(request: Request, model: ModelSpec) -> DraftMethod:
    """The method of speculative decoding; default: by the named draft model, or MTP modules."""
    method_name = request.draft_method
    modules = max(model.num_nextn_predict_layers, model.mtp_num_layers)
    if method_name is None:
        if request.draft_model is not None:
            return DraftMethod.DRAFT_MODEL
        return DraftMethod.MTP if modules and request.draft_tokens else DraftMethod.UNSPECIFIED
    try:
        method = DraftMethod(method_name)
    except ValueError:
        methods = ", ".join(filter(None, DraftMethod))
        raise SpecError(f"Unknown draft_method {method_name!r}. Known: {methods}.") from None
    if (method is DraftMethod.DRAFT_MODEL) != (request.draft_model is not None):
        raise SpecError("--draft-method draft_model needs --draft-model, and no other method does.")
    if method is DraftMethod.MTP and not modules:
        raise SpecError(f"{model.name} has no modules of multi-token prediction: choose another.")
    return method


def _lora_targets(request: Request) -> AdapterTargets:
    """The matrices that served LoRA adapters change; refuses unknown names and a missing rank."""
    targets = request.lora_targets
    if targets and not request.lora_rank:
        raise SpecError("--lora-targets needs --lora-rank.")
    try:
        return served_targets(targets)
    except ValueError:
        choices = ", ".join(AdapterTargets)
        raise SpecError(
            f"Unknown lora_targets {targets!r}. Known: {choices}; or names of modules such as "
            "q_proj,v_proj."
        ) from None


def draft_of(request: Request, model: ModelSpec, catalogue: Catalogue) -> ModelSpec | None:
    """The draft model of speculative decoding; None: no drafts.

    Raises SpecError if the draft model is unknown or faulty, or has another vocabulary size.
    """
    if not request.draft_tokens:
        return None
    if request.draft_model is None:
        return head_of(model, _draft_method(request, model))
    draft = catalogue.load_model(request.draft_model)
    if draft.vocab_size != model.vocab_size:
        raise SpecError(
            f"{draft.name} cannot draft for {model.name}: it has {draft.vocab_size:,} tokens, not "
            f"{model.vocab_size:,}."
        )
    return draft


def with_options(engine: EngineProfile, request: Request) -> EngineProfile:
    """The engine with the request's limits of the scheduler, LoRA slots and choice of CUDA graphs.

    Raises SpecError if the request sets redundant experts, decode context parallelism or API
    servers, and the engine has none.
    """
    if request.redundant_experts and not engine.redundant_experts:
        raise SpecError(
            f"{engine.name} has no redundant experts: leave out --redundant-experts, or name "
            "an engine that does (vllm, sglang, tensorrt-llm)."
        )
    if (_cache_split(request) > 1) and not engine.decode_context_parallel:
        raise SpecError(
            f"{engine.name} has no decode context parallelism: leave out "
            "--decode-context-parallel, or name an engine that does (vllm, sglang)."
        )
    if request.max_num_seqs is not None:
        engine = with_sequence_limit(engine, request.max_num_seqs)
    if request.stream_interval is not None:
        scheduler = replace(engine.scheduler, stream_interval=request.stream_interval)
        engine = replace(engine, scheduler=scheduler)
    if request.api_servers is not None:
        if not request.api_servers > 0:
            raise SpecError("--api-servers must be above 0.")
        if engine.front_end is None:
            raise SpecError(
                f"No time of API servers of {engine.name} is known: leave out api_servers, or name "
                "an engine with one (vllm, sglang)."
            )
        front_end = replace(engine.front_end, processes=request.api_servers)
        engine = replace(engine, front_end=front_end)
    if request.num_adapters is not None and request.max_loras is not None:
        # Requests whose adapter has no slot wait until one of others has ended.
        shares = zipf_shares(number=request.num_adapters, exponent=request.adapter_skew)
        draws = lru_characteristic_draws(shares=shares, slots=request.max_loras)
        max_num_seqs = max(int(min(draws, engine.scheduler.max_num_seqs)), 1)
        engine = replace(engine, scheduler=replace(engine.scheduler, max_num_seqs=max_num_seqs))
    engine = with_graphs(engine, request.captured_batch or 0)
    return without_cuda_graphs(engine) if request.enforce_eager else engine


def with_sequence_limit(engine: EngineProfile, max_num_seqs: int) -> EngineProfile:
    """The engine with another ``max_num_seqs``, also in its memory profiling run."""
    memory = engine.memory
    if memory.profiled_seqs:
        memory = replace(memory, profiled_seqs=max_num_seqs, fixed_profiled_seqs=True)
    scheduler = replace(engine.scheduler, max_num_seqs=max_num_seqs)
    return replace(engine, scheduler=scheduler, memory=memory)


def with_max_num_seqs(inputs: ServingInputs, max_num_seqs: int, concurrency: int) -> ServingInputs:
    """The inputs whose engine starts with ``max_num_seqs`` at exactly this ``concurrency``.

    At any other concurrency the number of requests is the limit.
    """
    engine = with_sequence_limit(inputs.engine, max_num_seqs)
    engine = replace(engine, scheduler=inputs.engine.scheduler)
    return replace(inputs, engine=engine, engine_max_num_seqs=concurrency)


def with_graphs(engine: EngineProfile, captured_batch: int) -> EngineProfile:
    """The engine with CUDA graphs of so many sequences; 0: of any."""
    return replace(engine, execution=replace(engine.execution, captured_batch=captured_batch))


def without_cuda_graphs(engine: EngineProfile) -> EngineProfile:
    """The engine without CUDA graphs: the host launches each kernel of every step."""
    e, without_graphs = engine.execution, engine.without_graphs
    layer, routing = e.prefill_launch_time, 0.0
    if without_graphs is not None:
        layer, routing = without_graphs.layer_launch_time, without_graphs.expert_launch_time
    execution = replace(
        e,
        decode_launch_time=max(e.decode_launch_time, layer),
        prefill_launch_time=max(e.prefill_launch_time, layer),
        decode_expert_launch_time=max(e.decode_expert_launch_time, routing),
        expert_launch_time=max(e.expert_launch_time, routing),
        network_callback_time=0.0,
    )
    memory = replace(engine.memory, graphs=0.0)
    return replace(engine, execution=execution, memory=memory)

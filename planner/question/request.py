"""What a user asks for, before any spec is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import TypeAlias

from planner.base.records import record
from planner.errors import SearchSpaceError

_AS_PREDICTED = 0.5
ALL = "all"
"""The answer for all models, GPUs, frameworks and so on."""

Answers: TypeAlias = Mapping[str, object]
"""Answers by question: texts, numbers or several of them, as a user gave them or as parsed."""

Settings: TypeAlias = Mapping[str, object]
"""The value or the values to try, by parameter of a configuration."""


@record(kw_only=True)
class Request:
    """A planning question; only the model and the number of GPUs are needed.

    The fields are the questions of the table of terms (`planner.question.terms`), with the
    workloads of each. `planner.search` and `planner.estimate` read them: numbers may be text
    (``"8k"`` is 8000, ``"8Ki"`` 8192, ``"40%"`` 0.4), limits text with a unit (``"6s"``),
    parameters have short names (``tp``), and several values are any list, set, range, array or text
    with commas. None: the default of the workload, framework, engine or model.

    Parameters
    ----------
    model : name, alias or path of a spec, a Hugging Face ``config.json`` or ORG/NAME; several or
        ``all``: the best plans of each are compared
    workload : ``train``, ``inference`` (one static batch), ``serve`` or ``rl``
    num_gpus : number of GPUs, several, or ``all``: powers of two up to the size of the cluster; to
        serve, ``request_rate`` may replace it
    gpu : name, alias or path of a spec, several, or ``all``; default: A100-SXM-80GB
    cluster : name, alias or path of a spec; default: nodes with the GPU's own links, of 8
        A100-SXM-80GB without a GPU
    node_host_memory : host memory of a node [bytes]; default: that of the cluster or the GPU
    space : name, alias or path of a search space, which names its framework or engine
    precision : number format of matrix products, several, or ``all``: training's parameter
        ``precision``, ``quantization`` to serve
    settings : value or values by parameter, which replace those of the space
    objectives : one to three objectives of the workload; default: the usual ones
    constraints : bound in SI units by limit of the workload
    confidence : share of published runs like the plan that fit in memory and keep every limit, 0.5
        (as predicted) to 0.95. Default: limits as predicted, memory as
        `planner.confidence.fits.default_fit_confidence`
    price : rent [USD per GPU and hour], or text for several GPUs or contracts:
        ``"h100=1.9,b200=4"``, ``"on-demand=1.9,spot=1.2"``; default: price lists
    purchase_price : price of a GPU with its share of the server [USD], for the contract ``owned``
    contract : contract, several, or ``all``; default: on demand
    term_utilization : share of the hours of a contract's term, or of owned GPUs, with work, 0 to 1
    provider : seller of the GPUs; default: median price of all sellers
    prices : CSV file of the user's prices, which replace those of the price lists
    currency : second currency of money: ``"EUR"`` at the shipped rate, ``"EUR=1.10"`` at this rate
    region : location of the electricity: ``"SE"``, ``"US-VA"``, ``"GCP europe-west4"``
    pue : power of the building over that of the IT equipment
    ideal : every efficiency is 1 and every latency 0: the roofline bound
    memory_efficiency : share of the memory bandwidth, or text with a unit: ``"1.5 TB/s"``
    lora_rank : rank of the adapters, to serve the greatest; default: 16 to train, none to serve
    specs : folder of own spec files, searched before the working directory and shipped files
    framework : name, alias or path of a profile, several, or ``all``; default: that of the space,
        or all current ones that run on the GPU
    sequence_length : tokens of a training sequence; default: that of the model's published run
    global_batch_size : samples of an optimizer step
    total_tokens : tokens of the run; or ``num_samples`` and ``epochs``, or ``max_steps``
    num_samples : samples of the training set
    epochs : times that each sample is trained; default: 1
    max_steps : optimizer steps of the run
    dropout : whether training uses dropout; its masks take memory
    trained_layers : last layers that are trained or have adapters; 0: all layers
    pipeline_layout : layers of each pipeline chunk as Megatron-Core writes them, or their numbers:
        ``"7,8,8,7"``
    mtp_num_layers : modules of multi-token prediction to train; default: as published, none with an
        adapter
    adapter : ``none`` (all weights), ``lora``, ``qlora``, ``prompt`` or ``prefix``, several, or
        ``all``
    lora_targets : matrices with adapters: ``query_value``, ``attention``, ``all_linear`` or PEFT
        names
    expert_adapters : adapters of routed experts: ``none``, ``shared`` or ``each``
    modules_to_save : modules trained in full together with an adapter: ``none`` or ``embeddings``
    double_quantization : whether the scales of QLoRA's 4-bit weights are quantized
    quantization_bits : bits of QLoRA's frozen weights: 4 or 8; default: 4
    virtual_tokens : virtual tokens of prompt and prefix tuning; default: 20
    training_objective : ``pretrain``, ``sft``, ``dpo``, ``orpo``, ``kto``, ``rm``, ``grpo`` or
        ``dapo``; default: ``sft`` with an adapter, else ``pretrain``
    tuned : whether the run or server is tuned on its GPUs; default: pretraining is tuned, first
        runs of fine-tuning and servers are not
    precompute_ref_log_probs : whether log-probabilities of the reference model are computed before
        training
    images_per_sample : images of a sample or prompt; default: 0
    tokens_per_image : tokens of an image; default: those of the model's usual image size
    image_size : width x height of an image [pixels], such as ``"1024x768"``
    freeze_vision_tower : whether the vision tower is not trained; default: trained with images,
        left out without
    padding : how samples fill sequences: ``packed`` (default), ``longest``, ``full`` or ``none``
    mean_sample_length : mean tokens of a sample before the sequence cuts it off
    sample_length_deviation : standard deviation of the tokens of a sample; default: 0.8 of the mean
    flops_efficiency : share of the peak that training steps or the products of serving reach, or
        text with a unit (``"150 TFLOP/s"``, of 16-bit products); replaces the time model
    intra_node_efficiency : share of the bandwidth inside a scale-up domain, or text with a unit
    inter_node_efficiency : share of the network's bandwidth between nodes, or text with a unit
    gpus_per_node : GPUs of a node; default: those of the cluster
    network : network between nodes: ``"10GbE per node"``, ``"100 Gbit/s per GPU"``
    reliability : name, alias or path of failure rates; ``ideal``: no failures; default:
        ``published``
    campaign_factor : GPU-hours of a pretraining campaign over those of its steps and failures, at
        least 1
    rollout_gpu : GPU of the engines that generate answers, or several; default: ``gpu``
    engine : name, alias or path of a profile, several, or ``all``; default: that of the space, or
        all current ones that run on the GPU
    engine_version : release of the engine, such as ``"0.27.1"``; default: any measured release
    mode : ``aggregated``, ``disaggregated``, ``attention-ffn`` or several; default: the first two
    prefill_gpu : GPU of the prefill workers of disaggregated plans; default: ``gpu``
    input_tokens : mean tokens of a prompt; default: 1024
    output_tokens : mean tokens of an answer; 0: prompts are embedded or scored; default: 1024
    audio_seconds : sound of a prompt [s]; its tokens are part of the prompt
    request_rate : requests that the deployment must serve [1/s]
    input_variation, output_variation : standard deviation over mean of the tokens of prompts and
        answers; default: 1 to serve, 0 of a static batch
    lengths : name or file of measured lengths, which replace tokens and variations
    trace : CSV or JSONL file of requests, which replaces ``request_rate`` and lengths that are not
        specified
    prompt_range : part of the requests by prompt tokens: ``"<=6k"``, ``">6k"``, ``">2k-6k"``
    users : users of the service; their busiest hour replaces ``request_rate``
    requests_per_user : requests of an active user [1/h]
    active_share : share of the users who are active in the busiest hour
    arrival_variation : standard deviation over mean of the gaps between requests; 1: random
        arrivals
    replay : whether the recommended plan is also simulated with the requests of the trace
    equal_lengths : whether all requests have the same lengths
    num_requests : requests in all, as in a benchmark; default: no end
    prefix_cache_hit_rate : share of the prompt tokens in the prefix cache; default: of ``trace`` or
        ``turns``
    shared_prefix_tokens : tokens at the start of all prompts, computed and cached once
    turns : messages of a session; a prompt contains all earlier messages
    tool_calls : tool calls after each message, each with a request
    think_time : mean time from an answer to the next message [s]
    think_variation : standard deviation over mean of ``think_time``
    tool_time : mean time from an answer to the result of its tools [s]
    tool_variation : standard deviation over mean of ``tool_time``
    router : replica of a request: ``round_robin``, ``random`` or ``cache_aware``
    host_cache : host memory per GPU for prefixes [bytes]
    disk_cache : disk space per GPU for prefixes [bytes]
    draft_tokens : tokens drafted per step, or several numbers to choose from; 0: no speculative
        decoding
    acceptance_rate : probability that a drafted token is accepted if all before it were; default:
        as published
    draft_cost : drafting time over the time of a step
    draft_model : model that drafts
    max_num_seqs : sequences of a step on an attention rank; default: that of the engine
    enforce_eager : whether decode steps run without CUDA graphs
    captured_batch : sequences of an attention rank in the largest CUDA graph of a server; default:
        any
    api_servers : processes that serve the clients of a replica; default: those of the engine
    stream_interval : tokens of an answer that are sent together; default: that of the engine
    stage_layers : layers of the pipeline stage that has most; default: as even as possible
    decode_context_parallel : ranks that hold parts of a sequence's cache in decoding, not copies,
        or several numbers to choose from; None: 1, and in searches over long prompts also 8
    redundant_experts : copies of routed experts in a layer; default: the fewest that fill all ranks
    max_model_len : longest request that the engine accepts [tokens]; default: what fits
    embedding_bits : bits of a weight of embedding and logits; default: as the engine stores them
    max_loras : adapters in one step; default: that of the engine
    num_adapters : adapters that requests name
    adapter_skew : popularity of the k-th adapter is proportional to 1 / k^``adapter_skew``
    draft_method : ``draft_model``, ``mtp``, ``eagle``, ``eagle3`` or ``ngram``
    draft_steps : tokens drafted one after the other; fewer than ``draft_tokens``: a tree
    algorithm : ``grpo``, ``rloo``, ``dapo`` or ``ppo``
    prompts_per_step : prompts of a step of reinforcement learning
    samples_per_prompt : answers to each prompt
    output_cap : most tokens of an answer; default: 4 times the mean
    reference_model : whether a reference model computes log-probabilities; default: with grpo,
        rloo, ppo
    critic : whether a critic of the model's size is trained; default: with ppo
    adapter_sync : weights that the engine gets of adapters: ``adapter`` or ``merged``
    old_logprob : whether the trainer recomputes the log-probabilities of the answers
    reward_time : reward time of a step that generation does not hide [s]
    flat_groups : share of the prompts whose answers all have one reward; dapo draws them again
    update_epochs : times that each answer is trained
    micro_batch_tokens : tokens of a micro-batch of the trainer; default: the longest sequence
    """

    model: str | tuple[str, ...]
    workload: str = "train"
    num_gpus: int | str | tuple[int, ...] | None = None
    gpu: str | tuple[str, ...] | None = None
    cluster: str | None = None
    node_host_memory: float | None = None
    space: str | None = None
    precision: str | tuple[str, ...] | None = None
    settings: Settings = field(default_factory=dict)
    objectives: tuple[str, ...] = ()
    constraints: Mapping[str, float] = field(default_factory=dict)
    confidence: float | None = None
    price: float | str | None = None
    purchase_price: float | str | None = None
    contract: str | tuple[str, ...] | None = None
    term_utilization: float | None = None
    provider: str | None = None
    prices: str | None = None
    currency: str | None = None
    region: str | None = None
    pue: float | None = None
    ideal: bool = False
    memory_efficiency: float | str | None = None
    lora_rank: int | None = None
    specs: Path | None = None

    framework: str | tuple[str, ...] | None = None
    sequence_length: int | None = None
    global_batch_size: int | None = None
    total_tokens: float | None = None
    num_samples: int | None = None
    epochs: float | None = None
    max_steps: int | None = None
    dropout: bool = False
    trained_layers: int = 0
    pipeline_layout: str | None = None
    mtp_num_layers: int | None = None
    adapter: str | tuple[str, ...] = "none"
    lora_targets: str | None = None
    expert_adapters: str | None = None
    modules_to_save: str | None = None
    double_quantization: bool = True
    quantization_bits: int | None = None
    virtual_tokens: int | None = None
    training_objective: str | None = None
    tuned: bool | None = None
    precompute_ref_log_probs: bool = False
    images_per_sample: float | None = None
    tokens_per_image: int | None = None
    image_size: str | None = None
    freeze_vision_tower: bool | None = None
    padding: str | None = None
    mean_sample_length: int | None = None
    sample_length_deviation: int | None = None
    flops_efficiency: float | str | None = None
    intra_node_efficiency: float | str | None = None
    inter_node_efficiency: float | str | None = None
    gpus_per_node: int | None = None
    network: str | None = None
    reliability: str | None = None
    campaign_factor: float | None = None

    engine: str | tuple[str, ...] | None = None
    engine_version: str | None = None
    mode: str | tuple[str, ...] | None = None
    prefill_gpu: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    audio_seconds: float = 0.0
    request_rate: float | None = None
    input_variation: float | None = None
    output_variation: float | None = None
    lengths: str | None = None
    trace: str | None = None
    prompt_range: str | None = None
    users: int | None = None
    requests_per_user: float | None = None
    active_share: float = 1.0
    arrival_variation: float = 1.0
    replay: bool = False
    equal_lengths: bool = False
    num_requests: int | None = None
    prefix_cache_hit_rate: float | None = None
    shared_prefix_tokens: int = 0
    turns: int | None = None
    tool_calls: int = 0
    think_time: float | None = None
    think_variation: float = 1.0
    tool_time: float | None = None
    tool_variation: float = 1.0
    router: str = "round_robin"
    host_cache: float = 0.0
    disk_cache: float = 0.0
    draft_tokens: int | tuple[int, ...] = 0
    acceptance_rate: float | None = None
    draft_cost: float = 0.0
    draft_model: str | None = None
    max_num_seqs: int | None = None
    enforce_eager: bool = False
    captured_batch: int | None = None
    api_servers: float | None = None
    stream_interval: int | None = None
    stage_layers: int | None = None
    decode_context_parallel: int | tuple[int, ...] | None = None
    redundant_experts: int | None = None
    max_model_len: int | None = None
    embedding_bits: int | None = None
    max_loras: int | None = None
    num_adapters: int | None = None
    adapter_skew: float = 0.0
    draft_method: str | None = None
    draft_steps: int | None = None

    rollout_gpu: str | tuple[str, ...] | None = None
    algorithm: str = "grpo"
    prompts_per_step: int | None = None
    samples_per_prompt: int | None = None
    output_cap: int | None = None
    reference_model: bool | None = None
    critic: bool | None = None
    adapter_sync: str | None = None
    old_logprob: bool = True
    reward_time: float = 0.0
    flat_groups: float = 0.0
    update_epochs: int = 1
    micro_batch_tokens: int | None = None

    def changed(self, **answers: object) -> Request:
        """The request with new values of some fields.

        Parameters
        ----------
        answers : new value by field
        """
        return Request(**vars(self) | answers)

    @property
    def one_contract(self) -> str | None:
        """The contract of the request; None: the default.

        Raises SearchSpaceError if the request has several contracts.
        """
        if isinstance(self.contract, tuple):
            raise SearchSpaceError(f"Give one contract, not {', '.join(self.contract)}.")
        return self.contract

    @property
    def at_shares(self) -> bool:
        """True if peaks, or shares of peaks that the request sets, replace efficiencies.

        In training, ``flops_efficiency`` replaces the time model and needs no peaks.
        """
        return self.ideal or (self.flops_efficiency is not None and self.workload != "train")

    @property
    def limit_confidence(self) -> float:
        """Confidence of the limits; without ``confidence`` 0.5, as predicted."""
        return _AS_PREDICTED if self.confidence is None else self.confidence

    @property
    def lasting_rate(self) -> float | None:
        """Request rate of an endless stream [1/s]; None: no rate, or ``num_requests`` is set."""
        return self.request_rate if self.num_requests is None else None


class PlanRequest(Request):
    """The question of a plan or a launch file: ``settings`` are its layout.

    A search leaves the layout open; what a `Request` sets, it keeps.
    """

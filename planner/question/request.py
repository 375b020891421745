"""What a user asks for, before any spec is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from planner.base.records import record

_AS_PREDICTED = 0.5
ALL = "all"
"""In place of the names of models, GPUs, frameworks and so on."""


@record(kw_only=True)
class Request:
    """A planning question; only the model and the number of GPUs are needed.

    The fields are the questions of the table of terms (`planner.question.terms`), which explains
    each and says which workloads know it; to serve, ``request_rate`` may stand in for the GPUs.
    `planner.search` and `planner.estimate` read them: numbers may be text (``"8k"`` is 8000,
    ``"8Ki"`` 8192, ``"40%"`` 0.4), limits text with a unit (``"6s"``), parameters have short
    names (``tp``), and what may be several is any list, set, range, array or text with commas.

    Parameters
    ----------
    workload : ``train``, ``inference`` (one static batch), ``serve`` or ``rl``
    model, gpu, cluster, space, framework, engine : name, alias or path of a spec
        Without a cluster, one is made from the GPU's own links; without both, 8-GPU nodes
        of A100-SXM-80GB. A space names its framework or engine; with neither, all current ones that
        run on the GPU are tried. The model may also be a Hugging Face ``config.json`` or ORG/NAME.
    num_gpus : one count or several; ``all`` are the powers of two up to the cluster's end
    precision : of the matrices: training's parameter ``precision``, ``quantization`` to serve
    model, gpu, framework, engine, adapter, precision, num_gpus : each may be several, or ``all``;
        the best plans of all their values are compared
    settings : parameter -> value or values, replacing those of the space
    objectives : one to three terms that are objectives of the workload; where there are none,
        what its plans are usually chosen by
    constraints : term that is a limit of the workload -> bound in SI units
    confidence : share of published runs like these that would fit in memory and keep every limit,
        from 0.5 (the prediction does) to 0.95; the GPUs for a ``request_rate`` are those that it
        takes then. Where nobody gives one, limits are judged as predicted, and plans fit that do so
        as surely as makes both wrong verdicts on published runs as rare
        (`planner.confidence.fits.default_fit_confidence`)
    total_tokens : tokens of the run; or ``num_samples`` and ``epochs``, or ``max_steps``
    price : USD per GPU and hour, or text with that of several: ``"h100=1.9,b200=4"``
    contract, provider : on what terms GPUs are had, and from whom; where nobody says so,
        the median of what sellers ask on demand
    term_utilization : share of the hours of a contract's term, or of what is owned, that has work
    prices : CSV file of own prices, which replace those of the price lists
    currency : money is said in it, too: ``"EUR"`` at the shipped rate, ``"EUR=1.10"`` at this one
    region : where electricity comes from: ``"SE"``, ``"US-VA"``, ``"GCP europe-west4"``
    pue : power of the building over that of what computes in it
    flops_efficiency, memory_efficiency : share of a peak, or text with a unit such as
        ``"150 TFLOP/s"``, ``"1.5 TB/s"``; of serving a rate is one of 16 bit, and 8 bit reach the
        same share of their peak
    intra_node_efficiency, inter_node_efficiency : the same of the links inside a node, and of the
        network between nodes; ``gpus_per_node`` : how many GPUs a node has; ``network`` : what
        joins nodes, such as ``"10GbE per node"`` or ``"100 Gbit/s per GPU"``
    mode : ``aggregated``, ``disaggregated`` or both
    campaign_factor : GPU-hours of a whole campaign of pretraining over those of its steps and
        failures, at least 1
    reliability : name, alias or path of the figures on failures; ``ideal`` where none count
    specs : folder of own spec files, looked in before the working directory and what is shipped
    """

    model: str | tuple[str, ...]
    workload: str = "train"
    num_gpus: int | str | tuple[int, ...] | None = None
    gpu: str | tuple[str, ...] | None = None
    cluster: str | None = None
    node_host_memory: float | None = None
    space: str | None = None
    precision: str | tuple[str, ...] | None = None
    settings: Mapping[str, object] = field(default_factory=dict)
    objectives: tuple[str, ...] = ()
    constraints: Mapping[str, float] = field(default_factory=dict)
    confidence: float | None = None
    price: float | str | None = None
    contract: str | None = None
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
    redundant_experts: int | None = None
    max_model_len: int | None = None
    embedding_bits: int | None = None
    max_loras: int | None = None
    num_adapters: int | None = None
    adapter_skew: float = 0.0
    draft_method: str | None = None
    draft_steps: int | None = None

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
        """The question with other values of some fields."""
        return Request(**vars(self) | answers)

    @property
    def at_shares(self) -> bool:
        """Whether specs and profiles lose nothing: peaks, or given shares of them, are reached.

        A share of training replaces its time model, profiles and all.
        """
        return self.ideal or (self.flops_efficiency is not None and self.workload != "train")

    @property
    def limit_confidence(self) -> float:
        """The confidence that limits are judged at: where none is given, as predicted."""
        return _AS_PREDICTED if self.confidence is None else self.confidence

    @property
    def lasting_rate(self) -> float | None:
        """The rate [1/s] that has to be carried: that of requests without an end."""
        return self.request_rate if self.num_requests is None else None


class PlanRequest(Request):
    """The question of a plan or a launch file: ``settings`` are its layout.

    A search leaves the layout open; what a `Request` sets, it keeps.
    """

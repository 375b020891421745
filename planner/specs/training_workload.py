"""Training workloads: one training run, or steps of reinforcement learning."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Annotated, Literal

from planner.base.enums import AdapterKind, AdapterTargets, Padding
from planner.base.read_files import packaged_rows
from planner.base.records import record
from planner.base.software_enums import Placement, WeightSync
from planner.base.training_aliases import (
    AdapterSync,
    Algorithm,
    ExpertAdapters,
    SavedModules,
    TrainingObjective,
)
from planner.base.units import UNITS
from planner.errors import SpecError
from planner.specs.spec_files import Ratio, Seconds, Share
from planner.specs.validated import Interval, PostValidator, validated

_REPEATED_GROUP = re.compile(r"\(([^()]+)\)\*(\d{1,4})")
_REPEATED = re.compile(r"(.)\*(\d{1,4})")
_COUNTS = re.compile(r"\d{1,5}(,\d{1,5})*")
_LONGEST = 100_000


def chunks_of(layout: str) -> list[str]:
    """Split a pipeline layout into chunks; E: embedding, t: layer, m: prediction, L: loss.

    Raises SpecError if the layout is invalid or longer than any model.

    Parameters
    ----------
    layout : layout as Megatron-Core writes it, such as ``Et*3|(tt|)*2,m|L``

    >>> chunks_of("Et*3|(tt|)*2,m|L")
    ['Ettt', 'tt', 'tt', 'm', 'L']
    """
    text = layout.replace(",", "").replace(" ", "")
    for pattern in (_REPEATED_GROUP, _REPEATED):
        counts = (int(number) * len(each) for each, number in pattern.findall(text))
        if len(text) + sum(counts) > _LONGEST:
            raise SpecError(f"The layout {layout[:60]!r} of the pipeline has too many layers.")
        text = pattern.sub(lambda match: match[1] * int(match[2]), text)
    if set(text) - set("EtmL|"):
        raise SpecError(
            f"{layout[:60]!r} is not a pipeline layout, as Et*3|(tt|)*29,m|L and 7,8,8,7 are."
        )
    return text.split("|")


@lru_cache(maxsize=256)
def layers_of_chunks(layout: str) -> tuple[int, ...]:
    """Return the number of layers of each chunk of a layout (or of a list of numbers).

    Raises SpecError if the layout is invalid, or embedding or loss are not in the first and the
    last chunk.

    Parameters
    ----------
    layout : layout as Megatron-Core writes it, or the number of layers of each chunk

    >>> layers_of_chunks("Et*3|(tt|)*2,m|L"), layers_of_chunks("7,8,8,7")
    ((3, 2, 2, 1, 0), (7, 8, 8, 7))
    """
    text = layout.replace(" ", "")
    if _COUNTS.fullmatch(text):
        return tuple(int(number) for number in text.split(","))
    chunks = chunks_of(layout)
    inside = "".join(chunks)
    if not inside.startswith("E") or not inside.endswith("L") or chunks[0][:1] != "E":
        raise SpecError(
            f"{layout[:60]!r}: the first chunk of a pipeline holds the embedding (E), the last one "
            "the loss (L)."
        )
    if inside.count("E") > 1 or inside.count("L") > 1 or chunks[-1][-1:] != "L":
        raise SpecError(f"{layout[:60]!r} has several embeddings or losses, or chunks after L.")
    return tuple(chunk.count("t") + chunk.count("m") for chunk in chunks)


USUAL_DEVIATION = 0.8
"""Standard deviation of samples' lengths over their mean: 3,234 and 2,547 tokens in the benchmark
of modelscope/ms-swift@cdb169b78, docs/source_en/LLM/Benchmark.md."""


_EIGHT = 8


@validated
class AdapterSetup:
    """Trained part of a model: all weights, or adapters of frozen weights.

    Parameters
    ----------
    adapter : kind of adapter
    lora_rank : rank of the adapters
    lora_targets : matrices with adapters
    expert_adapters : adapters of routed experts
    modules_to_save : modules that are trained in full together with an adapter
    double_quantization : scales of 4-bit weights are quantized
    quantization_bits : bits of the frozen weights of QLoRA, 4 or 8
    virtual_tokens : virtual tokens of prompt and prefix tuning
    """

    adapter: AdapterKind = AdapterKind.NONE
    lora_rank: Annotated[int, Interval(ge=1, le=100_000)] = 16
    lora_targets: AdapterTargets = AdapterTargets.ATTENTION
    expert_adapters: ExpertAdapters = ExpertAdapters.NONE
    modules_to_save: SavedModules = SavedModules.NONE
    double_quantization: bool = True
    quantization_bits: Annotated[int, Interval(ge=4, le=8)] = 4
    virtual_tokens: Annotated[int, Interval(ge=0, le=100_000)] = 0

    @property
    def adapter_name(self) -> str:
        """The common name of the adapter; QLoRA has 4-bit weights."""
        is_eight = self.adapter is AdapterKind.QLORA and self.quantization_bits == _EIGHT
        return f"{_EIGHT}-bit {AdapterKind.LORA}" if is_eight else str(self.adapter)

    @property
    def is_frozen(self) -> bool:
        """Whether the weights of the model are frozen."""
        return self.adapter is not AdapterKind.NONE

    @property
    def saves_ends(self) -> bool:
        """Whether embedding and logits are trained in addition to an adapter."""
        return self.is_frozen and self.modules_to_save is SavedModules.EMBEDDINGS

    @property
    def has_virtual_tokens(self) -> bool:
        """Whether virtual tokens are trained, and no matrix has an adapter."""
        return self.is_frozen and not self.adapter.is_low_rank


@validated
class TrainingWorkload(AdapterSetup):
    """A training run.

    Parameters
    ----------
    sequence_length : tokens of a sequence
    global_batch_size : samples of an optimizer step; a search space may list others. A sample has
        `sequences_per_sample`
    total_tokens : tokens of the run
    dropout : dropout masks are kept
    trained_layers : last layers that are trained or have adapters; all other weights are frozen;
        0: all layers
    pipeline_layout : layers of each pipeline chunk as Megatron-Core writes them, or their numbers;
        empty: as the framework splits them
    padding : how samples fill sequences
    mean_sample_length : mean tokens of a sample before the sequence cuts it off; 0: samples fill
        their sequences
    sample_length_deviation : standard deviation of the tokens of a sample
    training_objective : training objective
    tuned : the run is tuned on its GPUs (True) or a first run (False); None: not specified
    precompute_ref_log_probs : log-probabilities of the reference model were computed before
        training
    images_per_sample : images of a sequence
    tokens_per_image : tokens of an image; 0: as usual for the model
    freeze_vision_tower : the vision tower is not trained; None: not specified, and without images
        it is left out
    """

    sequence_length: Annotated[int, Interval(ge=1, le=100_000_000)]
    global_batch_size: Annotated[int, Interval(ge=1, le=100_000_000)]
    total_tokens: Annotated[float, Interval(gt=0, lt=1e18)]
    dropout: bool = False
    trained_layers: Annotated[int, Interval(ge=0, le=100_000)] = 0
    pipeline_layout: str = ""
    padding: Padding = Padding.PACKED
    mean_sample_length: Annotated[int, Interval(ge=0, le=100_000_000)] = 0
    sample_length_deviation: Annotated[int, Interval(ge=0, le=100_000_000)] = 0
    training_objective: TrainingObjective = TrainingObjective.PRETRAIN
    tuned: bool | None = None
    precompute_ref_log_probs: bool = False
    images_per_sample: Annotated[float, Interval(ge=0, le=1_000_000)] = 0.0
    tokens_per_image: Annotated[int, Interval(ge=0, le=100_000_000)] = 0
    freeze_vision_tower: bool | None = None

    @property
    def has_tower(self) -> bool:
        """Whether the vision tower of a model is there, which a text model leaves out."""
        return self.images_per_sample > 0 or self.freeze_vision_tower is not None

    @property
    def freezes_tower(self) -> bool:
        """Whether the vision tower and its projector are frozen; with adapters they always are."""
        return self.is_frozen or self.trains_part or bool(self.freeze_vision_tower)

    @property
    def trains_part(self) -> bool:
        """Whether the last layers are trained in full, and the other weights are frozen."""
        return self.trained_layers > 0 and not self.is_frozen

    @property
    def sequences_per_sample(self) -> int:
        """Sequences of a sample that are trained."""
        return self.training_objective.sequences_per_sample

    @property
    def forward_passes(self) -> tuple[int, int]:
        """Passes without gradients over the trained sequences: of the policy, of the reference."""
        return self.training_objective.forward_passes(precomputed=self.precompute_ref_log_probs)

    @property
    def keeps_reference(self) -> bool:
        """Whether weights of a reference model are in memory; adapters are switched off instead."""
        return self.forward_passes[1] > 0 and not self.is_frozen

    @property
    def keeps_untrained(self) -> bool:
        """Whether there are weights that stay as they are."""
        return self.is_frozen or self.trains_part or self.keeps_reference

    @property
    def prompt_tokens(self) -> int:
        """Virtual tokens before the tokens of each sequence."""
        return self.virtual_tokens if self.adapter is AdapterKind.PROMPT else 0

    @property
    def computed_length(self) -> int:
        """Tokens that the longest sequences are computed with."""
        return self.sequence_length + self.prompt_tokens


_GIGABYTE = UNITS["byte"]["GB"]


@record(kw_only=True)
class Transfer:
    """Time of a method of weight transfer: ``start + bytes / rate``.

    Parameters
    ----------
    start : start of a transfer [s]
    rate : bandwidth [bytes/s] between fast networks
    sent_share : share of the weights that the network carries
    sharded : each GPU of an engine receives its own part; otherwise all of them receive all weights
    senders : GPUs of a node whose network cards send
    across_vendors : works between GPUs of two vendors, which no collective library connects
    source : publication
    """

    start: float
    rate: float
    sent_share: float
    sharded: bool
    senders: float
    across_vendors: bool
    source: str


@cache
def transfers(framework: str = "", engine: str = "") -> Mapping[WeightSync, Transfer]:
    """Return latency [s] and rate [byte/s] of each weight-sync method, by published transfers.

    A row of the framework and the engine replaces that of all.

    Parameters
    ----------
    framework : name of the framework's profile
    engine : name of the engine's profile
    """
    return {
        WeightSync[row["method"].upper()]: Transfer(
            start=float(row["start"]),
            rate=float(row["rate"]) * _GIGABYTE,
            sent_share=float(row["sent_share"]),
            sharded=row["sharded"] == "1",
            senders=float(row["senders"] or "inf"),
            across_vendors=row["across_vendors"] == "1",
            source=row["source"],
        )
        for row in packaged_rows(Path(__file__).parent / "weight_sync.csv")
        if framework.startswith(row["framework"]) and engine.startswith(row["engine"])
    }


def _placement(word: str) -> str:
    if word not in Placement.words():
        raise ValueError(f"must be one of {', '.join(Placement.words())}, not {word!r}")
    return word


def _method(word: str) -> str:
    methods = [method.word for method in WeightSync if method is not WeightSync.AUTO]
    if word not in methods:
        raise ValueError(f"must be one of {', '.join(methods)}, not {word!r}")
    return word


@validated
class RolloutProfile:
    """Generation of answers by a framework for reinforcement learning.

    Factors and host times are fitted to published steps, the same for all models and GPUs.

    Parameters
    ----------
    engine : profile of the default engine
    engines : other supported engines
    placements : supported placements of trainer and engine
    partial : placements in which running answers can continue with new weights
    colocated_memory : memory share of an engine on the GPUs of the trainer
    separate_memory : memory share of an engine on other GPUs
    colocated_sync : method of weight transfer to an engine on the same GPUs
    separate_sync : method of weight transfer to an engine on other GPUs
    adapters : low-rank adapters that can be trained on generated answers
    adapter_sync : default weights that the engine gets of a model with adapters
    merged_engines : engines that always get merged weights
    critic : supports a critic in addition to the policy, as PPO needs
    separate_models : further models that can have GPUs of their own: reference, critic
    max_num_seqs : default maximum of answers that an engine generates at once; 0: the default of
        the engine
    waits_for_batch : a step waits for all its answers; otherwise it uses the finished ones, and
        the other answers continue
    pads_linear_attention : answers of a model with linear attention are not packed into
        micro-batches: each is padded to the longest
    micro_batch_tokens : default tokens of a micro-batch, if the longest sequence has fewer
    decode_factor : time of the engine's steps over that of a server; 1 in shipped profiles
    decode_layer_time : additional time of each layer in a step of the engine over that of a server
        [s]: the engine returns log-probabilities, samples, and does not hide its scheduler
    pass_factor : time of the trainer's passes over those of pretraining or fine-tuning: sequences
        have different lengths, and logits become log-probabilities
    step_overhead : time of each step in which neither side works [s], such as rewards, advantages
        and moving batches
    sleep_time : time for a colocated engine to release or regain its memory [s]
    ipc_start : additional time of a weight transfer to an engine on the same GPUs by CUDA IPC [s]
    sync_factor : time of a weight transfer over that of published transfers with its method
    calibration_runs : number of the user's steps that the parameters were fitted to
    calibration_gpus : GPUs of these steps
    calibration_error : standard deviation of the logarithm of predicted over measured, for steps
        that were left out of the fit
    """

    engine: str
    engines: tuple[str, ...] = ()
    placements: tuple[Annotated[str, PostValidator(_placement)], ...]
    partial: tuple[Annotated[str, PostValidator(_placement)], ...] = ()
    colocated_memory: Share
    separate_memory: Share
    colocated_sync: Annotated[str, PostValidator(_method)]
    separate_sync: Annotated[str, PostValidator(_method)]
    adapters: tuple[AdapterKind, ...] = ()
    adapter_sync: AdapterSync = AdapterSync.MERGED
    merged_engines: tuple[str, ...] = ()
    critic: bool = False
    separate_models: tuple[Literal["reference", "critic"], ...] = ()
    max_num_seqs: Annotated[int, Interval(ge=0)] = 0
    waits_for_batch: bool = False
    pads_linear_attention: bool = False
    micro_batch_tokens: Annotated[int, Interval(ge=0)] = 0
    decode_factor: Ratio = 1.0
    decode_layer_time: Seconds = 0.0
    pass_factor: Ratio = 1.0
    step_overhead: Seconds = 0.0
    sleep_time: Seconds = 1.5
    ipc_start: Seconds = 0.0
    sync_factor: Ratio = 1.0
    calibration_runs: Annotated[int, Interval(ge=0)] = 0
    calibration_gpus: tuple[str, ...] = ()
    calibration_error: Ratio = 0.0


@validated
class RlWorkload(AdapterSetup):
    """One step of reinforcement learning: generate answers, then update.

    Parameters
    ----------
    algorithm : algorithm
    prompts_per_step : prompts of a step
    samples_per_prompt : answers to each prompt
    input_tokens : mean tokens of a prompt
    output_tokens : mean tokens of an answer, after the cut at ``output_cap``
    output_variation : standard deviation over mean of the answers' tokens before the cut
    output_cap : most tokens of an answer
    reference_model : a reference model computes log-probabilities
    critic : a critic is trained
    old_logprob : the trainer recomputes the log-probabilities of the answers
    reward_time : reward time of a step that generation does not hide [s]
    flat_groups : share of the prompts that are drawn again
    adapter_sync : weights that the engine gets of adapters; None: default of the framework
    update_epochs : times that each answer is trained
    micro_batch_tokens : tokens of a micro-batch of the trainer; 0: default
    steps : steps of the run
    """

    algorithm: Algorithm = Algorithm.GRPO
    prompts_per_step: Annotated[int, Interval(ge=1, le=10**8)]
    samples_per_prompt: Annotated[int, Interval(ge=1, le=10**6)]
    input_tokens: Annotated[int, Interval(ge=1, le=10**8)]
    output_tokens: Annotated[int, Interval(ge=1, le=10**8)]
    output_variation: Annotated[float, Interval(ge=0, le=10)] = 0.0
    output_cap: Annotated[int, Interval(ge=1, le=10**8)]
    reference_model: bool = True
    critic: bool = False
    old_logprob: bool = True
    reward_time: Annotated[float, Interval(ge=0, le=10**6)] = 0.0
    flat_groups: Annotated[float, Interval(ge=0, le=0.99)] = 0.0
    adapter_sync: AdapterSync | None = None
    update_epochs: Annotated[int, Interval(ge=1, le=10**4)] = 1
    micro_batch_tokens: Annotated[int, Interval(ge=0, le=10**9)] = 0
    steps: Annotated[int, Interval(ge=1, le=10**9)] = 1

    @property
    def samples(self) -> int:
        """Answers that a step trains."""
        return self.prompts_per_step * self.samples_per_prompt

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt with its answer."""
        return self.input_tokens + self.output_cap

    @property
    def mean_length(self) -> int:
        """Tokens of a prompt with its answer."""
        return self.input_tokens + self.output_tokens

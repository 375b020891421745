"""Reinforcement learning: work of a step, and generation of answers by a framework."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from planner.base.enums import AdapterKind
from planner.base.read_files import packaged_rows
from planner.base.records import record
from planner.base.software_enums import Placement, WeightSync
from planner.base.training_aliases import AdapterSync, Algorithm
from planner.base.units import UNITS
from planner.specs.spec_files import Ratio, Seconds, Share
from planner.specs.training_workload import AdapterSetup
from planner.specs.validated import Interval, PostValidator, validated

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

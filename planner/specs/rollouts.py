"""Reinforcement learning: what a step has to do, and how a framework generates its answers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated

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
    rate : bandwidth [bytes/s]
    source : publication
    """

    start: float
    rate: float
    source: str


@cache
def transfers() -> Mapping[WeightSync, Transfer]:
    """The methods, each as the published transfers of whole models tell it."""
    return {
        WeightSync[row["method"].upper()]: Transfer(
            start=float(row["start"]), rate=float(row["rate"]) * _GIGABYTE, source=row["source"]
        )
        for row in packaged_rows(Path(__file__).parent / "weight_sync.csv")
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
    """How a framework generates the answers that it trains.

    Factors and host times are fitted to published steps, the same for all models and GPUs.

    Parameters
    ----------
    engine : the profile of the engine that generates where nobody names another
    engines : others that it can generate with
    placements : where it can run trainer and engine
    partial : the placements in which its answers can go on with new weights
    colocated_memory : share of a GPU's memory that the engine is told where it shares the GPU
    separate_memory : the same where it does not
    colocated_sync : how weights get to the engine on the same GPUs
    separate_sync : how they get to others
    adapters : the low-rank adapters that it trains on generated answers
    adapter_sync : what of them the engine is given where nobody says so
    merged_engines : engines that are given merged weights all the same
    critic : whether it trains a critic beside the policy, as PPO needs
    max_num_seqs : answers that it lets an engine generate at once where nobody says so; 0: as many
        as the engine itself
    waits_for_batch : answers are generated for a step that waits for all of them; else a step takes
        those that are done, and others go on
    pads_linear_attention : answers of a model with linear attention are not packed into
        micro-batches: each is padded to the longest
    micro_batch_tokens : tokens of a micro-batch where nobody says so and the longest sequence has
        fewer
    decode_factor : time of the engine's steps over that of a server, which shipped profiles leave
        at 1
    decode_layer_time : what each layer adds to a step of the engine over that of a server [s]:
        log-probabilities come back, sampling is not greedy, and nothing of the scheduler hides
    pass_factor : time of the trainer's passes over that of a run which trains alone: sequences are
        of uneven length, and their logits become log-probabilities
    step_overhead : time of each step in which neither side works [s], such as rewards, advantages
        and moving batches
    sleep_time : time for a colocated engine to release or regain its memory [s]
    sync_factor : time of a transfer of weights over that of the published ones of its method
    calibration_runs : steps of a user that the numbers were fitted to
    calibration_gpus : the GPUs of these steps
    calibration_error : standard deviation of the logarithm of predicted over measured steps that
        were left out
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
    max_num_seqs: Annotated[int, Interval(ge=0)] = 0
    waits_for_batch: bool = False
    pads_linear_attention: bool = False
    micro_batch_tokens: Annotated[int, Interval(ge=0)] = 0
    decode_factor: Ratio = 1.0
    decode_layer_time: Seconds = 0.0
    pass_factor: Ratio = 1.0
    step_overhead: Seconds = 0.0
    sleep_time: Seconds = 1.5
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

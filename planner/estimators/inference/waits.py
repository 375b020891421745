"""What a request waits for before its prompt: the running step, other prompts, a place."""

from __future__ import annotations

import numpy as np

from planner.base.arrays import FloatArray
from planner.base.records import record
from planner.configurations.serving import ServingConfigurations
from planner.estimators.inference.setting import ServingSetting
from planner.formulas.queueing import (
    mean_wait,
    met_step,
    met_step_variance,
    place_wait,
    running_variance,
)

# A queue of a closed loop is bounded by its clients, not by this.
_BUSIEST = 0.98


@record(kw_only=True)
class Work:
    """What the requests of a replica ask of its steps; times in seconds.

    A step over B sequences takes ``fixed + slope B`` and ``prompt`` for every prompt in it;
    ``per_step`` prompts fill one. ``steps``: that an answer takes. ``places``: for sequences.
    """

    fixed: FloatArray
    slope: FloatArray
    prompt: FloatArray
    per_step: FloatArray
    steps: FloatArray
    places: FloatArray


@record(kw_only=True)
class Queue:
    """What requests meet when they come; times in seconds.

    ``decode_step``: of the step without prompts; ``load``: share of the time that computes
    prompts; ``met``: mean length of the step in which a request comes, ``met_variance`` its
    variance; ``wait``: until its own
    prompt would be through if it were alone, beyond that time; ``others``: what the prompts
    that came with it add to its own step; ``stall``: what those that come meanwhile add to its
    answer; ``prompts``: variance of what prompts add to a step, of all steps. ``running``:
    variance of the sequences that decode. A share ``place_share`` waits
    ``place_time`` for a place before; ``place_noise``: how much more than at random its queue
    varies, ``place_rate``: requests per second of all places, ``place_fill``: requests that come
    until an empty replica is as full as it gets (`averaged_share`).
    """

    decode_step: FloatArray
    load: FloatArray
    met: FloatArray
    met_variance: FloatArray
    wait: FloatArray
    others: FloatArray
    stall: FloatArray
    prompts: FloatArray
    running: FloatArray
    place_share: FloatArray
    place_time: FloatArray
    place_noise: FloatArray
    place_rate: FloatArray
    place_fill: FloatArray

    @property
    def place_wait(self) -> FloatArray:
        """Mean seconds of all requests until there is a place."""
        with np.errstate(invalid="ignore"):
            return np.where(self.place_share > 0, self.place_share * self.place_time, 0.0)


def queue_of(
    setting: ServingSetting,
    configurations: ServingConfigurations,
    work: Work,
    rate: FloatArray,
    decoding: FloatArray,
) -> Queue:
    """What requests meet that come at a ``rate`` [1/s] while so many decode.

    Requests of an open load come at random times, mostly in long steps, and long steps bring
    more of them. In a closed loop as many come in a step as answers end in it, whatever it takes.
    """
    w, c = setting.workload, configurations
    is_open = w.request_rate is not None
    mixes = setting.engine.scheduler.chunked_prefill
    step = (work.fixed + work.slope * decoding) / c.pipeline_parallel
    load = np.minimum(rate * work.prompt, _BUSIEST)
    mean = step / (1 - load)
    beside = step if mixes else np.zeros(())
    second = work.prompt * (1 + w.input_variation**2)
    if not is_open:
        together = np.maximum(c.concurrency - 1, 0.0)
        met = np.minimum(mean, step + together * work.prompt)
        busy = np.minimum(together, 1.0)
        others, wait = _wait(work, beside, load, met, w.input_variation)
        # What comes with one step fits the next, unless a prompt does not.
        wait = np.where(work.per_step < 1, wait, met / 2 + others)
        most = step + together * (work.prompt + step / work.per_step)
        zero, prompts = np.zeros(()), load * mean * second
        return Queue(
            decode_step=step, load=load, met=met, met_variance=prompts,
            wait=np.minimum(wait, most) * busy, others=others * busy, stall=zero,
            prompts=prompts, running=zero, place_share=zero, place_time=zero,
            place_noise=zero, place_rate=zero, place_fill=zero,
        )  # fmt: skip
    return _open_queue(setting, c, work, rate, decoding)


def _open_queue(
    setting: ServingSetting,
    configurations: ServingConfigurations,
    work: Work,
    rate: FloatArray,
    decoding: FloatArray,
) -> Queue:
    """What requests meet that come at random."""
    w, c = setting.workload, configurations
    mixes = setting.engine.scheduler.chunked_prefill
    step = (work.fixed + work.slope * decoding) / c.pipeline_parallel
    load = np.minimum(rate * work.prompt, _BUSIEST)
    mean, beside = step / (1 - load), step if mixes else np.zeros(())
    second = work.prompt * (1 + w.input_variation**2)
    busy = -np.expm1(-c.concurrency)
    met, met_variance = (
        what(
            decode_step=step,
            load=load,
            work=work.prompt,
            variation=w.input_variation,
            mixes=mixes,
        )
        for what in (met_step, met_step_variance)
    )
    others, wait = _wait(work, beside, load, met, w.input_variation)
    variance, noise = running_variance(
        running=decoding, load=load, fixed=work.fixed, slope=work.slope
    )
    answers = np.asarray(work.steps * (work.fixed + work.slope * work.places))
    most = work.places / (answers + work.places * work.prompt)
    share, time = place_wait(
        running=decoding,
        places=work.places,
        variance=variance,
        noise=noise,
        spare_rate=most - rate,
    )
    own = work.prompt + others + beside
    return Queue(
        decode_step=step,
        load=load,
        met=met,
        met_variance=met_variance,
        wait=wait * busy,
        others=others * busy,
        stall=np.maximum(own - mean, 0.0) * load / (1 - load) * busy,
        prompts=load * mean * second / (1 - load) ** 2,
        running=variance,
        place_share=share,
        place_time=time,
        place_noise=noise,
        place_rate=most,
        place_fill=decoding * (work.fixed + work.slope * decoding) / work.fixed,
    )


def _wait(
    work: Work, step: FloatArray, load: FloatArray, met: FloatArray, variation: float
) -> tuple[FloatArray, FloatArray]:
    """What others add to a request's own step, and its wait before and in that step.

    Half of the step that it meets is left. The prompts that came before it in that step are
    computed before its own, those that came after it in the same step as long as that has
    room. Where one step does not take what comes, prompts queue at a server that takes
    them one after the other, each with its share of the ``step`` beside it.
    """
    before = load * met / 2
    after = np.minimum(before, work.prompt * work.per_step / 2)
    share = step / work.per_step
    alone = work.prompt + share
    busy = np.minimum(load * alone / work.prompt, _BUSIEST)
    queue = mean_wait(utilization=busy, service_time=alone, variation=variation) + step / 2
    gated = met / 2 + before + after
    return before + after, np.maximum(gated, queue + np.minimum(share, 0.5 * step))


def steady_noise(work: Work, rate: FloatArray) -> FloatArray:
    r"""By how much of itself a sequence lengthens the mean step of an open load.

    .. math:: \kappa = \frac{1}{2} \left(1 + \frac{1}{(1 - \rho)^2}\right)

    A replica gains less from more sequences than it loses from fewer, so that their number
    must be larger on average; the second order of the same diffusion as `running_variance`.
    """
    load = np.minimum(rate * work.prompt, _BUSIEST)
    return np.asarray(0.5 * (1 + 1 / (1 - load) ** 2))

"""What a request waits for, and how waits spread, in plain floats; part of the naive twin."""

from __future__ import annotations

from dataclasses import dataclass
from math import erfc, exp, expm1, inf, log, pi, sqrt
from statistics import NormalDist


@dataclass(frozen=True, kw_only=True)
class Demand:
    """A replica's steps, and what requests ask of them."""

    fixed: float
    slope: float
    prompt: float
    per_step: float
    steps: float
    places: float
    stages: float
    clients: float
    is_open: bool
    mixes: bool
    variation: float
    answers: float


@dataclass(frozen=True, kw_only=True)
class Met:
    """What a request meets."""

    decode_step: float
    load: float
    met: float
    met_variance: float
    wait: float
    others: float
    stall: float
    prompts: float
    running: float
    place_share: float
    place_time: float

    @property
    def place_wait(self) -> float:
        return self.place_share * self.place_time if self.place_share > 0 else 0.0


@dataclass(frozen=True, kw_only=True)
class Line:
    """Clients who start at once before fewer places."""

    number: float
    clients: float
    places: float
    rate: float
    delay: float

    @property
    def groups(self) -> list[tuple[float, float, float]]:
        """The share of the requests, and the least and the most that they wait."""
        longest = max(self.clients - self.places, 0) / self.rate
        waiting = max(self.clients - self.places, 0) / self.number
        later = 1 - self.clients / self.number
        ramp = (waiting, self.delay, self.delay + longest)
        return [(1 - later - waiting, 0.0, 0.0), ramp, (later, longest, longest)]

    @property
    def mean(self) -> float:
        return sum(share * (low + high) / 2 for share, low, high in self.groups)

    @property
    def variance(self) -> float:
        squares = [
            share * (low**2 + low * (high - low) + (high - low) ** 2 / 3)
            for share, low, high in self.groups
        ]
        return max(sum(squares) - self.mean**2, 0.0)

    def within(self, share: float) -> float:
        """Halved until so many wait no longer."""
        (none, _, _), (ramp, least, most), (later, longest, _) = self.groups
        if share <= none or not ramp:
            return longest if later and not ramp else 0.0

        def shares(wait: float) -> float:
            inside = min(max((wait - least) / max(most - least, 1e-300), 0.0), 1.0)
            return none + ramp * inside + later * (wait >= longest)

        low, high = 0.0, max(most, longest)
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if shares(middle) < share else (low, middle)
        return high


def noise(load: float) -> float:
    """An arrival and its prompt, which stops all others, against a departure."""
    stopped = 1 / (1 - load)
    return (1 + stopped * stopped) / 2


def meets(demand: Demand, rate: float, decoding: float) -> Met:
    d = demand
    step = (d.fixed + d.slope * decoding) / d.stages
    load = min(rate * d.prompt, 0.98)
    second = d.prompt * (1 + d.variation * d.variation)
    mean = step / (1 - load)
    others = max(d.clients - 1, 0.0)
    met, varied = meets_step(d, step, load), step_variance(d, step, load)
    prompts = load * mean * second
    if d.is_open:
        prompts /= (1 - load) ** 2
    else:
        met, varied = min(mean, step + others * d.prompt), prompts
    beside = step if d.mixes else 0.0
    before = load * met / 2
    after = min(before, d.prompt * d.per_step / 2)
    share = beside / d.per_step
    alone = d.prompt + share
    busy = min(load * alone / d.prompt, 0.98)
    arrivals = 1.0 if d.is_open else d.answers**2
    lined_up = busy * alone * (arrivals + d.variation**2) / (2 * (1 - busy)) + beside / 2
    wait = max(met / 2 + before + after, lined_up + min(share, beside / 2))
    share_of_places, time, variance = 0.0, 0.0, 0.0
    if d.is_open:
        chance = -expm1(-d.clients)
        variance = noise(load) * decoding * (d.fixed + d.slope * decoding) / d.fixed
        stopped = d.places
        if d.stages > 1 and d.mixes:
            stopped = min(d.places, d.steps * d.per_step)
        most = d.places / (d.steps * (d.fixed + d.slope * d.places) + stopped * d.prompt)
        most = min(most, 1 / d.prompt)
        share_of_places = tail((d.places - decoding) / sqrt(variance))
        time = noise(load) / (most - rate) if most > rate else inf
    else:
        chance = min(others, 1.0)
        if d.per_step >= 1 or not d.mixes:
            wait = met / 2 + before + after
        wait = min(wait, step + others * (d.prompt + step / d.per_step))
    own = d.prompt + before + after + beside
    return Met(
        decode_step=step,
        load=load,
        met=met,
        met_variance=varied,
        wait=wait * chance,
        others=(before + after) * chance,
        stall=max(own - mean, 0.0) * load / (1 - load) * chance if d.is_open else 0.0,
        prompts=prompts,
        running=variance,
        place_share=share_of_places,
        place_time=time,
    )


def tail(score: float) -> float:
    """Borjesson and Sundberg's share above a score; within 0.3 % of the true one."""
    z = abs(score)
    above = exp(-z * z / 2) / sqrt(2 * pi) / (0.661 * z + 0.339 * sqrt(z * z + 5.51))
    assert above == 0 or abs(above / (erfc(z / sqrt(2)) / 2) - 1) < 0.003 or z > 30
    return above if score >= 0 else 1 - above


def place_within(met: Met, share: float) -> float:
    """Of those that wait for a place, the waits are exponential."""
    if met.place_share <= 1 - share:
        return 0.0
    return log(met.place_share / (1 - share)) * met.place_time


def first_variance(demand: Demand, met: Met, waited: float) -> float:
    """The step, the time in it, the prompts of others, the own prompt."""
    load, s, c = met.load, demand.prompt, demand.variation
    total = (0.5 + load) ** 2 * met.met_variance
    total += (met.met_variance + met.met**2) / 12 + load * met.met * s * (1 + c * c)
    longer = waited / max((0.5 + load) * met.met, 1e-300)
    queued = total * longer * max(longer, 1)
    if longer > 1:
        queued = min(queued, waited**2 * (2 / min(max(load, 1e-6), 1.0) - 1))
    return queued + (s * c) ** 2


def step_variance(demand: Demand, step: float, load: float) -> float:
    """Of the step that is met at a random time."""
    s, second = demand.prompt, 1 + demand.variation**2
    unbounded = meets_step(demand, step, load)
    if demand.mixes:
        mean = step / (1 - load)
        spread = mean * (unbounded - mean)
        third = load * s * s * second**3 * mean + 3 * load**2 * s * second * spread
        moment = third / (1 - load**3) + 3 * mean * spread + mean**3
        return max(moment / mean - unbounded**2, 0.0)
    prompts = (unbounded - (1 - load) * step) / max(load, 1e-12)
    return load * (1 - load) * (prompts - step) ** 2 + load * prompts**2


def meets_step(demand: Demand, step: float, load: float) -> float:
    """The step that is met where clients do not bound it."""
    second = demand.prompt * (1 + demand.variation**2)
    if demand.mixes:
        return step / (1 - load) + load * second / (1 - load**2)
    prompts = (second + load * step * (1 - load)) / (1 - load**2)
    return (1 - load) * step + load * prompts


def of_others(demand: Demand) -> float:
    """Share of the prompts that other clients send."""
    return 1.0 if demand.is_open else max(demand.clients - 1, 0) / max(demand.clients, 1)


def token_variances(
    demand: Demand, met: Met, decoding: float, answers: float, drafted: float
) -> tuple[float, float]:
    """By the sequences beside, averaged over an answer, and by the prompts that come."""
    own = demand.fixed + demand.slope * decoding
    x = min(max(demand.fixed / own, 1e-3), 1.0)
    averaged = 2 * (x - 1 + exp(-x)) / x**2
    beside = (demand.slope / (1 - met.load)) ** 2 * met.running * averaged
    prompts = of_others(demand) * met.prompts / max(demand.steps, 1.0)
    return beside / drafted**2, prompts * (1 + answers**2) / drafted**2


def gamma_within(share: float, mean: float, variance: float) -> float:
    mean = max(mean, 1e-100)
    inverse = min(variance / mean**2, 1e4)
    return mean * max(1 - inverse / 9 + NormalDist().inv_cdf(share) * sqrt(inverse) / 3, 0) ** 3


def lognormal_within(share: float, mean: float, variance: float) -> float:
    mean = max(mean, 1e-100)
    log_variance = log(1 + variance / mean**2)
    return mean * exp(NormalDist().inv_cdf(share) * sqrt(log_variance) - log_variance / 2)

"""How a run of few requests differs from one without end: a replica fills first, and empties."""

from __future__ import annotations

import numpy as np

from planner.base.arrays import FloatArray, Numeric

_ROUNDS = 12
# Nearer to 1 what fills a replica does not end, and its places bound it long before.
_FULLEST = 0.995


def filling_share(
    *,
    number: Numeric,
    rate: Numeric,
    capacity: Numeric,
    steady: Numeric,
    steps: Numeric,
    fixed: Numeric,
    slope: Numeric,
    load: Numeric,
) -> FloatArray:
    r"""Mean time per token of ``number`` requests over that of such without end.

    They come at a ``rate`` [1/s] to an empty replica that answers ``capacity`` [1/s]; a step over B
    of them takes ``fixed + slope B`` seconds, an answer n = ``steps``, and prompts a share
    :math:`\rho` = ``load`` of the time. ``steady`` of them, :math:`B_\infty`, decode in the end, or
    all that have places. A fluid, with u the answers of time :math:`n` steps [1]_:

    .. math:: B(u) = \lambda (t(u) - t(u - 1)), \quad
        t'(u) = \frac{n (a + b B(u))}{1 - \rho}, \quad x = \frac{\lambda n b}{1 - \rho}

    Until the first is answered :math:`B = a / b (e^{x u} - 1)`; then, of :math:`B_1 = a x / b
    (1 - x)` without bounds, a share :math:`D e^{-\kappa (u - 1)}` is lacking,

    .. math:: D = 1 - \frac{(e^x - 1) (1 - x)}{x}, \quad \kappa = x (e^\kappa - 1)

    of which the second is the root of the characteristic equation. A request that comes at u meets
    steps of :math:`B(u + 1) / \lambda n`, by Little's law. Once none comes no prompts stop those
    that are left, who become fewer by the time of an answer: on average they save
    :math:`g / 2 - a / 2 - b B / 3` of their steps' g. Where all come before the first is
    answered, a share U of the time of an answer, a step takes
    :math:`N / 2 \lambda n + U (a / 2 + b N / 3) + (1 - U) (a + b N)`, with U = 1 no less than if
    some are answered before. Where they come faster than
    they are answered, places bound what fills. Derived here; `tests/reference/event_replica.py`
    holds it.

    References
    ----------
    .. [1] G. Newell, "Applications of Queueing Theory," 2nd ed., 1982, chapter 2.
    """
    n, a, b = (np.maximum(np.asarray(one, dtype=float), 1e-12) for one in (steps, fixed, slope))
    offered, most = np.asarray(rate, dtype=np.float64), np.asarray(capacity, dtype=np.float64)
    served = np.minimum(offered, most)
    stopped = np.minimum(np.asarray(load) * offered / served, 0.98)
    fed = offered * n * b / (1 - stopped)
    x = np.minimum(fed, _FULLEST)
    unbound = a / b * x / (1 - x)
    # How much more than the places would decode without that bound.
    beyond = np.maximum(unbound * served / (offered * np.maximum(steady, 1e-9)), 1.0)
    beyond = np.where(offered > most, beyond, 1.0)
    lacking = np.clip(1 - np.expm1(x) * (1 - x) / x, 0.0, 1.0)
    kappa = _relaxation(x)

    ends = np.isfinite(np.asarray(number))
    count = np.where(ends, number, 1.0)
    first = a / b * np.expm1(x)
    early = np.minimum(np.log1p(count * b / a) / fed, 1.0)
    later = _later(np.maximum(count - first, 0.0) / unbound, x * lacking, kappa)
    with np.errstate(divide="ignore"):
        full = np.log(np.maximum(lacking, 1e-300) / (1 - 1 / beyond)) / kappa
    until = np.minimum(1 + later, np.maximum(full, 0.0))
    missed = _missed(until, x=x, lacking=lacking, kappa=kappa, beyond=beyond)
    # Faster than that all places are taken before the first is answered.
    missed = np.where((offered > most) & (fed >= _FULLEST), 0.0, missed)

    level = unbound * (1 - lacking * np.exp(-kappa * later))
    level = np.minimum(np.where(fed < _FULLEST, level, steady), np.minimum(steady, count))
    step = a + b * level
    whole = (a + b * steady) / (1 - np.asarray(load))
    emptied = level * (step / (1 - np.asarray(load)) / 2 - a / 2 - b * level / 3) / whole
    many = 1 - (unbound * missed + np.maximum(emptied, 0.0)) / count
    until_last = count / 2 * np.maximum(1 / offered, np.asarray(load) / served)
    few = until_last / n + early * (a / 2 + b * count / 3) + (1 - early) * (a + b * count)
    few = np.where(count <= steady, few / whole, np.inf)
    found = np.where((early < 1) & np.isfinite(few), few, np.minimum(few, many))
    return np.where(ends, np.clip(found, a / whole, 1.0), 1.0)


def _relaxation(x: FloatArray) -> FloatArray:
    """The positive root of k = x (e^k - 1), by Newton's method from above."""
    kappa = 2 * np.log(1 / x) + 2 * (1 - x)
    for _ in range(_ROUNDS):
        grown = x * np.exp(kappa)
        kappa = kappa - (kappa - grown + x) / (1 - grown)
    return np.asarray(kappa)


def _later(count: FloatArray, share: FloatArray, kappa: FloatArray) -> FloatArray:
    """The u in which so many come after the first answer: w - share / k (1 - e^(-k w))."""
    w = count + share / kappa
    for _ in range(_ROUNDS):
        left = np.exp(-kappa * w)
        w = np.maximum(w - (w - share / kappa * (1 - left) - count) / (1 - share * left), 0.0)
    return np.asarray(w)


def _missed(
    until: FloatArray,
    *,
    x: FloatArray,
    lacking: FloatArray,
    kappa: FloatArray,
    beyond: FloatArray,
) -> FloatArray:
    """Of those that come until a time the sum of what they do not meet, in steady replicas."""
    u, w = np.minimum(until, 1.0), np.maximum(until - 1.0, 0.0)
    come = (1 - x) * np.expm1(x * u) / x + w - x * lacking / kappa * -np.expm1(-kappa * w)
    away = kappa - x
    with np.errstate(divide="ignore", invalid="ignore"):
        begun = np.where(np.abs(away) > 1e-9, -np.expm1(-away * u) / away, u)
    ends = -np.expm1(-kappa * w) / kappa - x * lacking * -np.expm1(-2 * kappa * w) / (2 * kappa)
    short = lacking * ((1 - x) * begun + np.exp(-kappa) * ends)
    return np.maximum((1 - beyond) * come + beyond * short, 0.0)

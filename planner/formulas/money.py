"""From a step of d tokens to a run of D: time t, GPU-hours on n GPUs; prices of tokens."""

from __future__ import annotations

import numpy as np

from planner.base.arrays import FloatArray, Numeric


def time_to_train(
    *, step_time: Numeric, total_tokens: Numeric, tokens_per_step: Numeric
) -> FloatArray:
    r"""Seconds to process ``total_tokens``, in whole steps, without restarts.

    .. math:: t \lceil D / d \rceil
    """
    return np.asarray(step_time * np.ceil(np.asarray(total_tokens) / tokens_per_step))


def gpu_seconds(*, duration: Numeric, num_gpus: Numeric) -> FloatArray:
    r"""GPU-seconds of a run.

    .. math:: t n
    """
    return np.asarray(duration * np.asarray(num_gpus))


def cost_per_million(*, cost_rate: Numeric, token_rate: Numeric) -> FloatArray:
    r"""USD for a million tokens of a kind, of which :math:`r` [1/s] are paid at :math:`c` [USD/s].

    .. math:: 10^6 c / r

    Unknown where there are no such tokens.
    """
    c, r = np.asarray(cost_rate), np.asarray(token_rate)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(r > 0, 1e6 * c / r, np.nan)


def cost_per_pflop_day(*, cost: Numeric, flops: Numeric) -> FloatArray:
    r"""USD for a PFLOP/s-day (10\ :sup:`15` FLOP/s for 86,400 s) of a run of F FLOPs that costs C.

    .. math:: 8.64 \times 10^{19} C / F
    """
    return np.asarray(8.64e19 * np.asarray(cost) / flops)


def request_cost(
    *,
    input_tokens: Numeric,
    cached_tokens: Numeric,
    output_tokens: Numeric,
    input_price: Numeric,
    cached_price: Numeric,
    output_price: Numeric,
) -> FloatArray:
    r"""USD of a request at prices per token, with :math:`n_c` of its :math:`n_i` found in a cache.

    .. math:: (n_i - n_c) p_i + n_c p_c + n_o p_o

    ``input_tokens`` are all of the prompt, the cached ones among them.
    """
    computed = np.asarray(input_tokens) - cached_tokens
    return np.asarray(
        computed * input_price + cached_tokens * cached_price + output_tokens * output_price
    )


def break_even_rate(*, cost_rate: Numeric, request_cost: Numeric) -> FloatArray:
    r"""Requests per second that cost at q USD each as much as GPUs at c USD/s, busy or not.

    .. math:: c / q

    Infinite where requests are free and GPUs are not.
    """
    c, q = np.asarray(cost_rate), np.asarray(request_cost)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(c / q)


def cost_per_request(*, cost_rate: Numeric, request_rate: Numeric) -> FloatArray:
    r"""USD of a request where GPUs at c USD/s serve r [1/s]: a load of half the rate doubles it.

    .. math:: c / r
    """
    c, r = np.asarray(cost_rate), np.asarray(request_rate)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(c / r)

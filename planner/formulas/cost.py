"""From a step of d tokens to a run of D: time t, GPU-hours on n GPUs; prices of tokens."""

from __future__ import annotations

import numpy as np

from planner.base.arrays import FloatArray, Numeric
from planner.base.units import YEAR

_YEARS_OF_RESALE = 3.0


def capital_cost(
    *, all_in_price: Numeric, lifetime: Numeric, residual_share: Numeric, financing_rate: Numeric
) -> FloatArray:
    r"""Return USD/s that pay for a purchase of ``all_in_price`` [USD] over ``lifetime`` [s].

    .. math:: P \frac{i \left(1 - r (1 + i)^{-n}\right)}{1 - (1 + i)^{-n}}

    a year: the annuity of a loan over n years at a ``financing_rate`` i [1/year], less what
    selling at the end brings, a share r of the price [1]_. Without interest it is a straight line.

    References
    ----------
    .. [1] The capital recovery factor; L. T. Blank and A. J. Tarquin, "Engineering Economy,"
       McGraw-Hill, chapters 2 and 5.
    """
    price, r, i = np.asarray(all_in_price, dtype=float), residual_share, financing_rate
    n = np.asarray(lifetime, dtype=float) / YEAR
    discount = (1 + np.asarray(i, dtype=float)) ** -n
    is_loan = np.greater(i, 0)
    annuity = np.where(is_loan, i, 1.0) / np.where(is_loan, 1 - discount, n)
    repaid = np.where(is_loan, 1 - r * discount, 1 - np.asarray(r))
    return price * annuity * repaid / YEAR


def residual_share(*, after_three_years: Numeric, lifetime: Numeric) -> FloatArray:
    r"""Return the share of the purchase price left when hardware is sold after ``lifetime`` [s].

    .. math:: r_3^{n / 3}

    with n in years: it loses the same share every year, and is worth r3 after three (derived
    here).
    """
    exponent = np.asarray(lifetime, dtype=float) / YEAR / _YEARS_OF_RESALE
    return np.asarray(after_three_years, dtype=float) ** exponent


def owned_price(
    *,
    purchase_price: Numeric,
    network_and_storage_share: Numeric,
    lifetime: Numeric,
    residual_after_3_years: Numeric,
    financing_rate: Numeric,
    power_per_gpu: Numeric,
    power_share: Numeric,
    pue: Numeric,
    electricity_price: Numeric,
    colocation_price: Numeric,
    operations_share: Numeric,
    utilization: Numeric,
) -> FloatArray:
    r"""Return USD per second of use of an owned GPU (derived here).

    .. math:: \frac{c (1 + o) + W (s \, \mathrm{PUE} \, e + l)}{u}

    Parameters
    ----------
    purchase_price : of a GPU with its share of the server [USD]
    network_and_storage_share : of the price of all, with network, storage and installation
    lifetime : until it is sold [s]; ``residual_after_3_years`` is what it is worth then
    financing_rate : 1/year
    power_per_gpu : W, what a GPU and its share of the host draw at most: the room W that is paid
        for with the ``colocation_price`` l [USD/(W s)]
    power_share : s, of that, on average drawn in use, with the ``electricity_price`` e [USD/J]
    operations_share : o, of the capital cost c, for staff, maintenance and software
    utilization : u, the share of the time in which somebody uses it
    """
    all_in_price = np.asarray(purchase_price, dtype=float) / (
        1 - np.asarray(network_and_storage_share)
    )
    capital = capital_cost(
        all_in_price=all_in_price,
        lifetime=lifetime,
        residual_share=residual_share(after_three_years=residual_after_3_years, lifetime=lifetime),
        financing_rate=financing_rate,
    )
    operations = operations_share * capital
    electricity = np.asarray(power_per_gpu) * power_share * pue * electricity_price
    room = np.asarray(power_per_gpu) * colocation_price
    return np.asarray((capital + operations + electricity + room) / utilization)


def time_to_train(
    *, step_time: Numeric, total_tokens: Numeric, tokens_per_step: Numeric
) -> FloatArray:
    r"""Return seconds to process ``total_tokens`` in full steps, without restarts.

    .. math:: t \lceil D / d \rceil

    Derived here.
    """
    return np.asarray(step_time * np.ceil(np.asarray(total_tokens) / tokens_per_step))


def gpu_seconds(*, duration: Numeric, num_gpus: Numeric) -> FloatArray:
    r"""Return the GPU-seconds of a run: duration times number of GPUs.

    .. math:: t n

    Derived here.
    """
    return np.asarray(duration * np.asarray(num_gpus))


def committed_gpu_seconds(
    *, used_gpu_seconds: Numeric, num_gpus: Numeric, term: Numeric
) -> FloatArray:
    r"""Return GPU-seconds of n GPUs for full terms T that cover ``used_gpu_seconds``.

    .. math:: n T \left\lceil \frac{s}{n T} \right\rceil

    Derived here.
    """
    each = np.asarray(num_gpus, dtype=float) * term
    return np.asarray(each * np.ceil(np.asarray(used_gpu_seconds) / each))


def charged_gpu_seconds(
    *, used_gpu_seconds: Numeric, committed_gpu_seconds: Numeric, utilization: Numeric
) -> FloatArray:
    r"""Return GPU-seconds charged to a run as its share of a commitment.

    .. math:: \min(s / u, S)

    Each hour with work pays for idle ones in proportion, and no run for more than all; with
    u = 0 nothing else has work.

    Derived here.
    """
    s, u = np.asarray(used_gpu_seconds, dtype=float), np.asarray(utilization, dtype=float)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(u > 0, np.minimum(s / u, committed_gpu_seconds), committed_gpu_seconds)


def cost_per_million(*, cost_rate: Numeric, token_rate: Numeric) -> FloatArray:
    r"""Return USD per million tokens at r tokens per second and c USD/s.

    .. math:: 10^6 c / r

    Unknown where there are no such tokens.

    Derived here.
    """
    c, r = np.asarray(cost_rate), np.asarray(token_rate)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(r > 0, 1e6 * c / r, np.nan)


def cost_per_pflop_day(*, cost: Numeric, flops: Numeric) -> FloatArray:
    r"""Return USD per PFLOP/s-day of a run of F FLOPs that costs C USD.

    .. math:: 8.64 \times 10^{19} C / F

    The unit is that of scaling laws [1]_.

    References
    ----------
    .. [1] J. Kaplan et al., "Scaling laws for neural language models," 2020,
       arXiv:2001.08361, section 1.3.
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
    r"""Return USD per request at prices per token; n_c of its n_i input tokens are cached.

    .. math:: (n_i - n_c) p_i + n_c p_c + n_o p_o

    ``input_tokens`` are all of the prompt, the cached ones among them.

    Derived here: as providers bill, an input token at one of two prices.
    """
    computed = np.asarray(input_tokens) - cached_tokens
    return np.asarray(
        computed * input_price + cached_tokens * cached_price + output_tokens * output_price
    )


def break_even_rate(*, cost_rate: Numeric, request_cost: Numeric) -> FloatArray:
    r"""Return requests per second at which an API price q equals GPUs at c USD/s.

    .. math:: c / q

    Infinite where requests are free and GPUs are not.

    Derived here.
    """
    c, q = np.asarray(cost_rate), np.asarray(request_cost)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(c / q)


def cost_per_request(*, cost_rate: Numeric, request_rate: Numeric) -> FloatArray:
    r"""Return USD per request of GPUs at c USD/s that serve r requests per second.

    .. math:: c / r

    Derived here.
    """
    c, r = np.asarray(cost_rate), np.asarray(request_rate)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(c / r)

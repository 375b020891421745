"""Electric power P of GPUs, hosts, network and building; energy E over a time t; carbon."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from planner.base.arrays import BoolArray, FloatArray, Numeric


def board_share(*, active: Numeric, waiting: Numeric, time_share: Numeric) -> FloatArray:
    r"""Return the power of a GPU board as a share of its design power (TDP).

    .. math:: w + (a - w) u

    It draws the share a of its thermal design power during a part u of the time, and w in the
    rest. In training it computes or waits for others [1]_; in serving it computes prompts near
    its design power or decodes at about half of it [2]_.

    References
    ----------
    .. [1] P. Patel et al., "POLCA: Power Oversubscription in LLM Cloud Providers," 2023,
       arXiv:2308.12908: power at the ends of iterations falls to between 20 and 75 % of it.
    .. [2] P. Patel et al., "Splitwise: Efficient Generative LLM Inference Using Phase
       Splitting," 2024, arXiv:2311.18677.
    """
    a, w, u = active, waiting, time_share
    return np.asarray(w + (a - w) * u)


def network_share(*, share_of_it: Numeric, is_spread: bool | BoolArray) -> FloatArray:
    r"""Return the power of switches and optics over the power of the nodes.

    .. math:: \frac{s}{1 - s}

    s is the share of the power of all that computes, the network in it; GPUs of one node need
    none (derived here).
    """
    s = np.asarray(share_of_it, dtype=np.float64)
    return np.where(is_spread, s / (1 - s), 0.0)


def facility_power(*, it_power: Numeric, power_usage_effectiveness: Numeric) -> FloatArray:
    r"""Return the power of cooling and losses in addition to the IT power [W].

    .. math:: P_{IT} (PUE - 1)

    PUE is the power of the building over the power of its IT equipment [1]_.

    References
    ----------
    .. [1] ISO/IEC 30134-2:2016, Information technology - Data centres - Key performance
       indicators - Part 2: Power usage effectiveness (PUE).
    """
    return np.asarray(it_power * (np.asarray(power_usage_effectiveness) - 1.0))


def energy(*, power: Numeric, duration: Numeric) -> FloatArray:
    r"""Return the energy [J] drawn in ``duration`` [s] at ``power`` [W].

    .. math:: P t

    Derived here: the power is a mean over the time.
    """
    return np.asarray(np.asarray(power) * duration)


def carbon(*, energy: Numeric, carbon_intensity: Numeric) -> FloatArray:
    r"""Return kg of CO2 equivalent for an energy [J] from a grid of ``carbon_intensity`` [kg/J].

    .. math:: c E

    Derived here: the intensity is a mean over the time.
    """
    return np.asarray(np.asarray(energy) * carbon_intensity)


def range_of_sum(*parts: tuple[float, float, float]) -> tuple[float, float]:
    r"""Return lowest and highest factor on a sum, from the (value, low, high) of its parts.

    .. math:: 1 \pm \frac{\sqrt{\sum_i \delta_i^2}}{\sum_i x_i}

    Parts deviate by :math:`\delta_i` from their values :math:`x_i` independently of each other
    (derived here).
    """
    total = sum(value for value, _, _ in parts)
    below = np.sqrt(sum((value - low) ** 2 for value, low, _ in parts))
    above = np.sqrt(sum((high - value) ** 2 for value, _, high in parts))
    return float(1 - below / total), float(1 + above / total)


@lru_cache(maxsize=1024)
def range_of_product(*factors: tuple[float, float]) -> tuple[float, float]:
    r"""Return lowest and highest factor on a product, from the ranges of its factors.

    .. math:: \exp\left(\sum_i m_i \pm \sqrt{\sum_i (\ln f_i - m_i)^2}\right)

    On either side the factors deviate independently of each other from m, which is 0, or their
    end next to it where they do not contain it (derived here).
    """
    low, high = ranges_of_products(*factors)
    return float(low), float(high)


def ranges_of_products(*factors: tuple[Numeric, Numeric]) -> tuple[FloatArray, FloatArray]:
    r"""Return lowest and highest factors on products of arrays, from their factors' ranges.

    .. math:: \exp\left(\sum m_i \mp \sqrt{\sum (m_i - \ln e_i)^2}\right)

    e are the lower or the upper ends of the factors, m their middles, 0 or the end next to it.

    Derived here.
    """
    squares_below, squares_above, middles = [], [], []
    for ends in factors:
        with np.errstate(divide="ignore"):
            low, high = (np.log(np.asarray(end, dtype=np.float64)) for end in ends)
        middle = np.clip(0.0, low, high)
        middles.append(middle)
        squares_below.append(np.square(middle - low))
        squares_above.append(np.square(high - middle))
    center = np.asarray(sum(middles))
    return np.exp(center - np.sqrt(sum(squares_below))), np.exp(
        center + np.sqrt(sum(squares_above))
    )

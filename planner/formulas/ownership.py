r"""What an hour of a GPU costs that one owns."""

from __future__ import annotations

import numpy as np

from planner.base.arrays import FloatArray, Numeric
from planner.base.units import YEAR

_YEARS_OF_RESALE = 3.0


def capital_cost(
    *, all_in_price: Numeric, lifetime: Numeric, residual_share: Numeric, financing_rate: Numeric
) -> FloatArray:
    r"""USD/s that pay for a purchase of ``all_in_price`` [USD] over its ``lifetime`` [s].

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
    r"""The share of its price that hardware is sold for after its ``lifetime`` [s].

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
    r"""USD/s of a GPU in use that one owns (derived here).

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

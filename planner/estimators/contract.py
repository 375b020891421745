"""What a run is charged under a contract: what it uses, or what is signed for a term."""

from __future__ import annotations

import math

import numpy as np

from planner.base.arrays import FloatArray, Numeric
from planner.base.records import record
from planner.formulas.money import charged_seconds, gpu_seconds, signed_seconds
from planner.specs.site import Site


@record(kw_only=True)
class Charge:
    """GPU-seconds ``used`` and ``signed`` for, and what a run is charged for them [USD].

    ``outlay`` is what is paid for all that is signed, or for what is bought, and ``break_even`` the
    share of the term with work from which on it is cheaper than on demand; both are None where
    nothing is signed for a term.
    """

    used: FloatArray
    signed: FloatArray
    cost: FloatArray
    outlay: FloatArray | None = None
    break_even: FloatArray | None = None

    @property
    def unused(self) -> FloatArray:
        """GPU-seconds that are signed for and not used by the run."""
        return self.signed - self.used


def charge(site: Site, *, duration: Numeric, num_gpus: Numeric) -> Charge:
    """What a run of a ``duration`` [s] on so many GPUs is charged on the terms of a site.

    Of a term all that is signed for it, or the run's part of it where the rest has work, as
    ``site.utilization`` says.
    """
    offer, n = site.offer, site.had(num_gpus)
    used = gpu_seconds(duration=duration, num_gpus=n)
    if offer is None or not offer.is_signed:
        return Charge(used=used, signed=used, cost=used * site.price)
    signed = signed_seconds(used=used, num_gpus=n, term=offer.term)
    charged = charged_seconds(used=used, signed=signed, utilization=site.utilization or 0.0)
    hourly = offer.value * offer.in_use
    bought = np.broadcast_to(n * offer.outlay, used.shape)
    return Charge(
        used=used,
        signed=signed,
        cost=charged * hourly,
        outlay=signed * hourly if math.isnan(offer.outlay) else bought,
        break_even=np.full(used.shape, offer.break_even),
    )


def outlay(site: Site, num_gpus: Numeric) -> FloatArray | None:
    """What is paid for one term of so many GPUs, or for buying them [USD]; None without a term."""
    term = 0.0 if site.offer is None else site.offer.term
    return charge(site, duration=term, num_gpus=num_gpus).outlay if term > 0 else None

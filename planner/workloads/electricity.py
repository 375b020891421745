"""What electricity a plan is told to use: its region, its building; and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from planner.base.arrays import FloatArray
from planner.base.units import KILOWATT, KILOWATT_HOUR, UNITS
from planner.confidence.intervals import Confidence
from planner.errors import SearchSpaceError
from planner.estimators.machine import Machine
from planner.estimators.ownership import pue_figure
from planner.estimators.power import power_range
from planner.formulas.power import range_of_product
from planner.question.request import Request
from planner.question.terms import terms_about
from planner.specs.ownership import Figure as Owned
from planner.specs.power import CARBON, ELECTRICITY, POWER, PUE, Between, Figure, PowerProfile
from planner.specs.site import Site
from planner.workloads.assumed import Notes

if TYPE_CHECKING:
    from planner.optimize.source import Source
    from planner.workloads.deployments import Serving

_LARGEST_PUE = 10.0


def with_power(site: Site, request: Request, notes: Notes) -> Site:
    """A site with what is drawn around its GPUs, and what electricity emits in its region.

    Raises
    ------
    SpecError, SearchSpaceError
        The region is unknown, a number is impossible, or a file has faults; or carbon is wanted
        and nobody said where.
    """
    loaded = notes.catalogue.load_power()
    region = None if request.region is None else notes.catalogue.find_region(request.region)
    figures = {} if region is None else region.figures
    asked = _is_asked((*request.objectives, *request.constraints), terms_about("electricity"))
    carbon = figures.get(CARBON)
    if carbon is None and _is_asked((*request.objectives, *request.constraints), ("carbon",)):
        what = "give --region" if region is None else f"none is known of {region.code}"
        raise SearchSpaceError(f"Emissions depend on the region: {what}.")
    if region is not None and carbon is not None:
        grams = carbon.value / UNITS["kg/J"]["gCO2e/kWh"]
        told = f"{grams:.0f} gCO2e/kWh in {region.code} ({carbon.source}, {carbon.year})"
        notes.defaults["electricity"] = told
    profile = _of_building(loaded.spec, request, figures)
    if request.pue is None and PUE in figures:
        notes.defaults["pue"] = f"{figures[PUE].value:g} ({figures[PUE].source})"
    elif request.pue is None and (asked or region is not None):
        low, high = profile.pue.low, profile.pue.high
        notes.defaults["pue"] = f"{profile.pue.value:g} ({low:g} to {high:g} published)"
    notes.spec("power", profile.name, loaded.digest, loaded.provenance)
    return replace(
        site, power=profile, carbon_intensity=math.nan if carbon is None else carbon.value
    )


def owned_place(request: Request, notes: Notes) -> Mapping[str, Owned]:
    """What owning GPUs takes of a request's building and region; the price of power goes to notes.

    Raises
    ------
    SpecError, SearchSpaceError
        The region is unknown, the PUE impossible, or a file has faults.
    """
    loaded = notes.catalogue.load_power()
    region = request.region
    figures = {} if region is None else notes.catalogue.find_region(region).figures
    source = figures[PUE].source if PUE in figures else POWER
    source = source if request.pue is None else "given"
    found = {PUE: pue_figure(_of_building(loaded.spec, request, figures), source)}
    if ELECTRICITY in figures:
        price = figures[ELECTRICITY]
        usd = price.value / UNITS["usd/J"]["USD/kWh"]
        notes.defaults["electricity_price"] = f"{usd:g} USD/kWh ({price.source}, {price.year})"
        found[ELECTRICITY] = Owned(
            value=price.value,
            low=price.value,
            high=price.value,
            source=price.source,
            date=price.year,
        )
    return found


def _of_building(
    profile: PowerProfile, request: Request, figures: Mapping[str, Figure]
) -> PowerProfile:
    """The profile with the PUE that is given, or is known of the region."""
    if request.pue is not None:
        if not 1 <= request.pue <= _LARGEST_PUE:
            raise SearchSpaceError(f"pue is a number from 1 to {_LARGEST_PUE:g}.")
        return profile.with_pue(request.pue)
    return profile.with_pue(figures[PUE].value) if PUE in figures else profile


def with_energy(
    sure: Confidence | None, machine: Machine, site: Site, num_gpus: float, boards: Between
) -> Confidence | None:
    """With the factors on ``power`` and ``energy`` of GPUs whose boards draw a known range.

    Energy is as sure as power and the time that it is drawn together.
    """
    if sure is None or site.power is None:
        return sure
    power = power_range(machine, site.power, num_gpus, boards)
    energy = range_of_product(_time(sure.factors), power)
    return replace(sure, factors={**sure.factors, "power": power, "energy": energy})


def serving_confidence(
    sure: Confidence | None, source: Source, num_gpus: float
) -> Confidence | None:
    """With those factors for a source whose GPUs mostly decode."""
    if source.site.power is None:
        return sure
    machine, boards = source.setting.machine, source.site.power.decode
    return with_energy(sure, machine, source.site, num_gpus, boards)


def _time(factors: Mapping[str, tuple[float, float]]) -> tuple[float, float]:
    """Factors on the time of a run, or of so many tokens."""
    for name in ("calendar_time", "step_time"):
        if name in factors:
            return factors[name]
    low, high = factors["throughput"]
    return 1 / high, 1 / low if low else math.inf


def _is_asked(words: Iterable[str], of: Iterable[str]) -> bool:
    return any(word.startswith(tuple(of)) for word in words)


def energy_columns(candidates: Serving) -> dict[str, FloatArray]:
    """Power, electricity of a million generated tokens, and its carbon in a known region."""
    found = {
        "power_kw": candidates.power / KILOWATT,
        "energy_per_million_tokens_kwh": candidates.energy_per_million_tokens / KILOWATT_HOUR,
    }
    if candidates.source.site.is_placed:
        found["carbon_per_million_tokens_kg"] = candidates.carbon_per_million_tokens
    return found

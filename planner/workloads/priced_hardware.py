"""The GPUs of a plan: cluster, network, price, electricity, and specified shares of peaks."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from planner.base.enums import Contract, Precision
from planner.base.formatting import format_gib
from planner.base.records import record
from planner.base.training_aliases import TrainingObjective
from planner.base.units import HOUR, UNITS, parse_quantity
from planner.errors import SearchSpaceError, SpecError, did_you_mean
from planner.estimators.ideal_hardware import ideal_hardware, with_compute_share, with_link_share
from planner.estimators.machine import Machine
from planner.estimators.ownership_cost import assumed_figures, owned_gpu_price, pue_figure
from planner.question.names import PURCHASE_PRICE
from planner.question.parse_values import Stated, price_of_contract, price_parts
from planner.question.request import Request
from planner.question.terms import terms_about, terms_of
from planner.specs.catalogue import default_cluster
from planner.specs.file_cache import cache_between_runs
from planner.specs.gpu import ClusterSpec, GpuSpec, is_assumed
from planner.specs.operating_terms import DEFAULT, IDEAL, Campaign, OperatingTerms, ReliabilitySpec
from planner.specs.power import CARBON, ELECTRICITY, POWER, PUE, PowerProfile
from planner.specs.price import (
    OWNERSHIP,
    UTILIZATION,
    Currency,
    Price,
    contracts_of,
    one_price,
    ownership_of,
    price_of,
    providers_of,
    rate,
    unknown_gpus,
)
from planner.specs.spec_files import SourcedQuantity as Owned
from planner.specs.spec_files import digest
from planner.specs.spec_paths import SpecKind, extra_files
from planner.workloads.assumptions import PlanNotes

_GBIT = UNITS["byte/s"]["Gbit/s"]
_INFINIBAND = {"EDR": 100, "HDR": 200, "NDR": 400, "XDR": 800}
# A port of today's adapters; several carry more where the words do not count them.
_FASTEST_PORT = 400 * _GBIT
_SIZES = {"k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_NETWORK = (
    r"\s*(?:(?P<count>\d+)\s*[x*]\s*)?"
    r"(?:(?P<rate>\d+(?:\.\d+)?)[ -]?(?P<size>[kKMGTgmt])(?P<unit>\w*(?:/s)?)|(?P<name>[EHNX]DR))"
    r"(?:\s*(?:infiniband|ib|roce|ethernet|nics?|ports?)\b)*"
    r"\s*(?:per|/|an?|each|for each)\s*(?P<owner>node|host|server|machine|gpu|card)s?\s*"
)
_BITS = ("be", "b/s", "bps", "bit/s", "bits/s", "bit", "bits", "igabit", "")
_BYTES = ("B/s", "Bps", "byte/s", "bytes/s")
_HOW = (
    'write the rate and its owner: "10GbE per node", "100 Gbit/s per GPU", "25 GB/s per GPU", '
    '"8x NDR per node"'
)


def with_network(cluster: ClusterSpec, network: str | None) -> ClusterSpec:
    """The cluster with the network that ``network`` describes; None: unchanged.

    The GPUs of a node share its ports evenly.

    Raises SearchSpaceError if the text cannot be parsed, or the rate is not positive.
    """
    if network is None:
        return cluster
    number, rate, is_of_node = _parse_network(network)
    per_node = cluster.gpus_per_node
    bandwidth = number * rate
    gpus_per_nic = 1
    if is_of_node:
        ports = number if number > 1 else math.ceil(rate / _FASTEST_PORT)
        bandwidth, gpus_per_nic = bandwidth / per_node, max(round(per_node / ports), 1)
    out = replace(cluster.scale_out, bandwidth=bandwidth, gpus_per_nic=gpus_per_nic)
    return replace(cluster, scale_out=out)


def _parse_network(network: str) -> tuple[int, float, bool]:
    """Parse a network: number of ports, bytes/s of a port, True if the ports are per node."""
    match = re.fullmatch(_NETWORK, network, re.IGNORECASE)
    if match is None:
        raise SearchSpaceError(f"--network {network!r}: {_HOW}.")
    number = int(match["count"] or 1)
    if match["name"]:
        rate = _INFINIBAND[match["name"].upper()] * _GBIT
    else:
        rate = (
            float(match["rate"])
            * _SIZES[match["size"].lower()]
            * _parse_unit(match["unit"], network)
        )
    if not 0 < number * rate < math.inf:
        raise SearchSpaceError(f"--network {network!r} is not a rate: {_HOW}.")
    return number, rate, match["owner"].lower() not in ("gpu", "card")


def _parse_unit(unit: str, network: str) -> float:
    """Bytes of the unit of a rate: 1 for GB/s; 1/8 for Gb/s, Gbps, GbE and G."""
    if unit in _BYTES:
        return 1.0
    if unit.lower() in _BITS:
        return 1 / 8
    raise SearchSpaceError(f"--network {network!r}: {unit} is not a unit of a rate; {_HOW}.")


_LARGEST_PUE = 10.0


def with_power(site: OperatingTerms, request: Request, notes: PlanNotes) -> OperatingTerms:
    """The operating terms with the power of hosts and building, and the carbon intensity.

    Raises SpecError or SearchSpaceError if the region is unknown, a number is impossible, or a file
    has errors; or if carbon is requested without a region.
    """
    loaded = notes.catalogue.load_power()
    region = None if request.region is None else notes.catalogue.find_region(request.region)
    figures = {} if region is None else region.figures
    needs_electricity = _mentions(
        (*request.objectives, *request.constraints), terms_about("electricity")
    )
    carbon = figures.get(CARBON)
    if carbon is None and _mentions((*request.objectives, *request.constraints), ("carbon",)):
        reason = "give --region" if region is None else f"none is known of {region.code}"
        raise SearchSpaceError(f"Emissions depend on the region: {reason}.")
    if region is not None and carbon is not None:
        grams = carbon.value / UNITS["kg/J"]["gCO2e/kWh"]
        note = f"{grams:.0f} gCO2e/kWh in {region.code} ({carbon.source}, {carbon.date})"
        notes.defaults["electricity"] = note
    profile = _building_power(loaded.spec, request, figures)
    if request.pue is None and PUE in figures:
        notes.defaults["pue"] = f"{figures[PUE].value:g} ({figures[PUE].source})"
    elif request.pue is None and (needs_electricity or region is not None):
        low, high = profile.pue.low, profile.pue.high
        notes.defaults["pue"] = f"{profile.pue.value:g} ({low:g} to {high:g} published)"
    notes.spec("power", profile.name, loaded.digest, loaded.provenance)
    return replace(
        site, power=profile, carbon_intensity=math.nan if carbon is None else carbon.value
    )


def ownership_figures(request: Request, notes: PlanNotes) -> Mapping[str, Owned]:
    """PUE and electricity price of owned GPUs by name; the price is added to ``notes``.

    Raises SpecError or SearchSpaceError if the region is unknown, the PUE impossible, or a file has
    faults.
    """
    loaded = notes.catalogue.load_power()
    region = request.region
    figures = {} if region is None else notes.catalogue.find_region(region).figures
    source = figures[PUE].source if PUE in figures else POWER
    source = source if request.pue is None else "given"
    ownership = {PUE: pue_figure(_building_power(loaded.spec, request, figures), source)}
    if ELECTRICITY in figures:
        price = figures[ELECTRICITY]
        usd = price.value / UNITS["usd/J"]["USD/kWh"]
        notes.defaults["electricity_price"] = f"{usd:g} USD/kWh ({price.source}, {price.date})"
        ownership[ELECTRICITY] = price
    return ownership


def _building_power(
    profile: PowerProfile, request: Request, figures: Mapping[str, Owned]
) -> PowerProfile:
    """The power profile with the PUE of the request, or else of the region."""
    if request.pue is not None:
        if not 1 <= request.pue <= _LARGEST_PUE:
            raise SearchSpaceError(f"pue is a number from 1 to {_LARGEST_PUE:g}.")
        return profile.with_pue(request.pue)
    return profile.with_pue(figures[PUE].value) if PUE in figures else profile


def _mentions(names: Iterable[str], prefixes: Iterable[str]) -> bool:
    return any(name.startswith(tuple(prefixes)) for name in names)


def reliability_of(request: Request, notes: PlanNotes) -> ReliabilitySpec:
    """The failure rates of a request; ideal (no failures) at a roofline or without training.

    Raises SpecError if the failure rates are unknown or faulty.
    """
    has_reliability = "reliability" in terms_of(request.workload, "question")
    if not has_reliability or (request.ideal and request.reliability is None):
        return IDEAL
    if request.reliability is None:
        notes.defaults["reliability"] = f"{DEFAULT} (default)"
    loaded = notes.catalogue.load_reliability(request.reliability or DEFAULT)
    notes.spec("reliability", loaded.spec.name, loaded.digest, loaded.provenance)
    return _with_campaign(request, loaded.spec, notes)


def _with_campaign(request: Request, spec: ReliabilitySpec, notes: PlanNotes) -> ReliabilitySpec:
    """The failure rates with the campaign factor of the request, or a default that is noted."""
    factor = request.campaign_factor
    if factor is not None:
        campaign = Campaign(typical=factor, low=factor, high=factor)
        return replace(spec, campaign=None if factor == 1 else campaign)
    defaults = str(TrainingObjective.PRETRAIN), "none"
    answers = (request.training_objective or defaults[0]).lower(), str(request.adapter).lower()
    published = spec.campaign
    if published is not None and answers == defaults:
        notes.defaults["campaign_factor"] = (
            f"{published.typical:.3g} [{published.low:.2g} to {published.high:.2g}] for restarts, "
            "evaluations and reruns, --campaign-factor 1 switches it off (default)"
        )
    return spec


_MOST = 1e6
_SHOWN = 6


def offer_of(request: Request, gpu: GpuSpec, is_needed: bool, notes: PlanNotes) -> Price | None:
    """The price of a GPU [USD/s], from the request or the price lists; None: unknown.

    Raises SearchSpaceError or SpecError if the price is impossible, the provider is unknown, a list
    has errors or names unknown GPUs; or if the price is ``is_needed`` and unknown.
    """
    contract = request.one_contract or Contract.ON_DEMAND
    usd = _requested_price(request.price, gpu, contract, notes)
    if usd is not None and contract != Contract.OWNED:
        if not 0 <= usd < _MOST:
            raise SearchSpaceError(f"The price is USD per GPU-hour, not {usd}.")
        requested = one_price(usd / HOUR, "given", contract)
        return replace(requested, provider=request.provider or "")
    folder = notes.catalogue.folder
    path = None if request.prices is None else Path(request.prices).absolute()
    files = [*([] if path is None else [path]), *notes.catalogue.price_files()]
    notes.digests["price lists"] = _digest(tuple(files))
    gpu_names = request.gpu if isinstance(request.gpu, tuple) else (request.gpu or "",)
    has_files = any(name.endswith(".toml") for name in gpu_names)  # whose GPUs no list can name
    if path is not None and not has_files and (errors := unknown_gpus(path, folder)):
        raise SpecError("\n".join(errors))
    _check_provider(request.provider, path, notes)
    price = _load_price(request, gpu, path, notes)
    if price is None:
        reason = _missing_price_reason(request, gpu.name, path, notes)
        if is_needed:
            raise SearchSpaceError(reason)
        notes.defaults["price"] = f"unknown ({reason.removesuffix('.')})"
        return None
    notes.defaults["price"] = _format_price(price, request.one_contract)
    return price


def _requested_price(
    price: Stated | None, gpu: GpuSpec, contract: str, notes: PlanNotes
) -> float | None:
    """The price of one GPU that the request sets [USD/h]; None: not set."""
    catalogue, prices = notes.catalogue, dict[bool, float]()
    for part in price_parts(price_of_contract(price, contract)):
        name = part.gpu
        if not name or name == gpu.name or catalogue.find(SpecKind.GPUS, name).stem == gpu.name:
            prices[bool(name)] = part.usd
    return prices.get(True, prices.get(False))


@cache_between_runs
def _digest(files: tuple[Path, ...]) -> str:
    return digest(*files)


def _load_price(
    request: Request, gpu: GpuSpec, user_folder: Path | None, notes: PlanNotes
) -> Price | None:
    """The GPU price under the requested contract, from lists or ownership costs; None: unknown."""
    if request.one_contract != Contract.OWNED:
        folder = notes.catalogue.folder
        return price_of(gpu.name, request.one_contract, request.provider, user_folder, folder)
    if request.provider is not None:
        raise SearchSpaceError(
            f"Owned GPUs have no provider: leave out {request.provider!r}, or choose another "
            "contract."
        )
    files = extra_files(OWNERSHIP, notes.catalogue.folder)
    notes.digests["ownership figures"] = _digest(tuple(files))
    place = dict(ownership_figures(request, notes))
    share = request.term_utilization
    if share is None and "cost" not in terms_of(request.workload, "limit"):
        share = 1.0  # a service runs as long as its contract
    if share is not None and share > 0:
        place[UTILIZATION] = Owned(value=share, low=share, high=share, source="given", date="")
    if (usd := _requested_price(request.purchase_price, gpu, Contract.OWNED, notes)) is not None:
        listed = ownership_of(gpu.name, notes.catalogue.folder).get(PURCHASE_PRICE)
        place[PURCHASE_PRICE] = Owned(
            value=usd, low=usd, high=usd, source="given", date="", gpus=listed.gpus if listed else 1
        )
    names = assumed_figures(gpu, notes.catalogue, place)
    notes.assumed += [f"gpu ownership.{name}" for name in names]
    price = owned_gpu_price(gpu, notes.catalogue, place)
    rent = price_of(gpu.name, Contract.ON_DEMAND, None, user_folder, notes.catalogue.folder)
    return replace(price, on_demand=rent.value) if price and rent else price


def _check_provider(provider: str | None, user_folder: Path | None, notes: PlanNotes) -> None:
    """Refuse a cloud provider that no price list has; None: any provider."""
    if provider is None:
        return
    providers = providers_of(None, user_folder, notes.catalogue.folder)
    if provider.strip().casefold() not in {name.casefold() for name in providers}:
        hint = did_you_mean(provider, providers)
        raise SearchSpaceError(
            f"No price list has the provider {provider!r}.{hint} Known: {', '.join(providers)}."
        )


def _missing_price_reason(
    request: Request, gpu: str, user_folder: Path | None, notes: PlanNotes
) -> str:
    """A sentence on why the price is missing, with contracts or providers that have one."""
    folder = notes.catalogue.folder
    if request.contract == Contract.OWNED:
        return (
            f"The purchase price or the power of {gpu} is unknown: give --purchase-price, or rows "
            f"in {OWNERSHIP} of --specs DIR."
        )
    contract_text = f" {request.contract}" if request.contract else ""
    provider_text = f" by {request.provider}" if request.provider else ""
    message = f"No list has a{contract_text} price of {gpu}{provider_text}: give --price"
    contracts = contracts_of(gpu, folder, user_folder, request.provider)
    if contracts:
        return f"{message}, or --contract {' or '.join(contracts)}."
    if request.provider and (sellers := providers_of(gpu, user_folder, folder)):
        others_text = " and others" if len(sellers) > _SHOWN else ""
        return f"{message}; it is sold by {', '.join(sellers[:_SHOWN])}{others_text}."
    return f"{message}."


def _format_price(price: Price, contract: str | None) -> str:
    """A price as text: USD per GPU-hour, contract, range and source."""
    text = f"{price.value * HOUR:.2f} USD per GPU-hour"
    if price.contract != Contract.ON_DEMAND:
        text += f" {price.contract}"
        text += "" if contract else " (none is on-demand)"
    if price.provider:
        text += f" of {price.provider}"
    if price.contract == Contract.OWNED:
        text += f" in use, {price.basis}"
    if price.low < price.high:
        text += f", {price.low * HOUR:.2f} to {price.high * HOUR:.2f}"
    if price.on_demand is not None:
        origin = "rent" if price.contract == Contract.OWNED else "of sellers who ask"
        text += f", {origin} {price.on_demand * HOUR:.2f} on demand"
    if price.is_old:
        text += f", {price.when}"
    is_rent = price.offers > 1 and not price.basis
    basis = f"{price.offers} offers" if is_rent else price.source
    if is_rent and not price.provider:
        basis = f"median of the sellers of {basis}"
    return f"{text} ({basis}{f', {price.when}' if price.when else ''})"


DEFAULT_GPU = "a100-sxm-80gb"
_MOST_OF_NODE = 1024
LARGEST_OF_ALL = 16_384
# Nodes of 8 A100, H100 and H200 that clouds rent and NVIDIA sells have 1.8 to 3.2 times their
# GPUs' memory: 1,152 to 2,048 GiB.
_MOST_HOST_MEMORY = 1e18
_USUAL_HOST_SHARE = 2.5


@record(kw_only=True)
class PricedHardware:
    """A GPU in its cluster, with price and operating terms."""

    machine: Machine
    site: OperatingTerms


def read_priced_hardware(
    request: Request, gpu: str | None, counts: tuple[int, ...], notes: PlanNotes, is_only: bool
) -> PricedHardware:
    """Read GPU, cluster, price and operating terms; price must be known if ``is_only``.

    Raises SpecError or SearchSpaceError if something is unknown, faulty or impossible.
    """
    spec, cluster = hardware(gpu, request.cluster, list(counts), notes)
    if spec.announced:
        notes.defaults["figures"] = f"as {spec.vendor} announced {spec.name}, not measured"
    if request.workload == "train" and not request.at_shares:
        _note_kernels(spec, gpu or spec.name, notes)
    cluster = with_host_memory(cluster, spec, request.node_host_memory)
    cluster = with_network(with_nodes(cluster, request.gpus_per_node), request.network)
    if "cluster" in notes.defaults:
        notes.defaults["cluster"] = _default_cluster_note(cluster, request.network)
    needs_price = any("cost" in name for name in (*request.objectives, *request.constraints))
    offer = offer_of(request, spec, needs_price and is_only, notes)
    if request.term_utilization is not None and not 0 < request.term_utilization <= 1:
        raise SearchSpaceError(
            "--utilization is the share of the hours signed for that has work: above 0, at most 1."
        )
    site = OperatingTerms(
        offer=offer,
        utilization=request.term_utilization,
        currency=None if request.currency is None else _parse_currency(request.currency, notes),
        contract=request.one_contract or Contract.ON_DEMAND,
        reliability=reliability_of(request, notes),
    )
    if request.at_shares:
        spec, cluster = ideal_hardware(spec, cluster)
    spec, cluster = with_links(spec, cluster, request)
    share = None
    if request.workload != "train":  # of a rate that of the 16-bit peak
        peak = spec.peak_flops.get(
            Precision.BF16, spec.peak_flops.get(Precision.FP16, float("nan"))
        )
        share = share_of_peak(request.flops_efficiency, "flop/s", peak, "flops_efficiency")
    if share is not None:
        spec = with_compute_share(spec, share)
    return PricedHardware(
        machine=Machine(
            gpu=spec,
            cluster=cluster,
            ideal=request.at_shares,
            flops_efficiency=share,
            memory_efficiency=share_of_peak(
                request.memory_efficiency, "byte/s", spec.memory_bandwidth, "memory_efficiency"
            ),
            catalogue=notes.catalogue,
        ),
        site=with_power(site, request, notes),
    )


def _parse_currency(text: str, notes: PlanNotes) -> Currency:
    """The currency that ``text`` names, at its stored rate or at a rate as in ``EUR=1.10``.

    Raises SearchSpaceError or SpecError if its rate is unknown or no number, or a list has faults.
    """
    code, _, rate_text = text.strip().upper().partition("=")
    if not rate_text:
        try:
            return rate(code, notes.catalogue.folder)
        except ValueError as error:
            raise SearchSpaceError(f"--currency: {error}, or EUR=1.10 here.") from error
    try:
        usd = float(rate_text)
    except ValueError:
        usd = 0.0
    if not 0 < usd < _MOST:
        raise SearchSpaceError(f"--currency: {rate_text!r} is not a number of USD, as in EUR=1.10.")
    return Currency(code=code, usd=usd)


def _note_kernels(gpu: GpuSpec, gpu_name: str, notes: PlanNotes) -> None:
    """Note that the matrix efficiency of a GPU is assumed, if no value is published."""
    provenance = notes.catalogue.load_gpu(gpu_name).provenance
    if is_assumed(provenance, "gemm.bf16.compute_fraction"):
        share = gpu.efficiency.gemm["bf16"].compute_fraction
        notes.defaults["kernels"] = (
            f"matrix products reach {share:.0%} of the peak of {gpu.name}: no published value"
        )


def powers_of_two_counts(max_gpus: int | None) -> tuple[int, ...]:
    """The powers of two up to ``max_gpus``; None: up to 16,384."""
    return tuple(2**power for power in range((max_gpus or LARGEST_OF_ALL).bit_length()))


def gpu_counts(num_gpus: object) -> list[int]:
    """The requested number, or numbers, of GPUs as a list."""
    counts = num_gpus if isinstance(num_gpus, tuple | list) else [num_gpus]
    if not all(isinstance(count, int) for count in counts):
        raise TypeError(f"{num_gpus!r} are not numbers of GPUs.")
    return list(counts)


def hardware(
    gpu_name: str | None, cluster_name: str | None, counts: list[int], notes: PlanNotes
) -> tuple[GpuSpec, ClusterSpec]:
    """Load the GPU and its cluster; default choices are added to ``notes``.

    Raises SpecError if GPU or cluster are unknown or faulty, or the GPUs differ in kind or number.
    """
    cluster = None
    if cluster_name is not None:
        loaded = notes.catalogue.load_cluster(cluster_name)
        cluster = loaded.spec
        notes.spec("cluster", cluster.name, loaded.digest, loaded.provenance)
    elif gpu_name is None:
        notes.defaults["gpu"] = f"{DEFAULT_GPU} (default)"
    name = gpu_name or (cluster.gpu if cluster is not None else DEFAULT_GPU)
    gpu = notes.catalogue.load_gpu(name)
    notes.spec("gpu", gpu.spec.name, gpu.digest, gpu.provenance)
    if cluster is None:
        cluster = default_cluster(gpu.spec)
        notes.defaults["cluster"] = _default_cluster_note(cluster)
    elif gpu.spec.name != cluster.gpu and notes.catalogue.find("gpus", cluster.gpu) != gpu.path:
        raise SpecError(
            f"Cluster {cluster.name} has {cluster.gpu}, not {gpu.spec.name}: "
            "leave out --gpu or --cluster, or give a file of such a cluster."
        )
    elif cluster.max_gpus is not None and max(counts, default=0) > cluster.max_gpus:
        raise SpecError(
            f"Cluster {cluster.name} ends at {cluster.max_gpus} GPUs, not {max(counts)}: "
            "choose another --cluster, or --gpu for a cluster of any size."
        )
    return gpu.spec, cluster


def _default_cluster_note(cluster: ClusterSpec, network: str | None = None) -> str:
    """A note on GPUs per node and network rate [Gbit/s] of the default cluster."""
    origin = "the GPU's own links" if network is None else f"--network {network}"
    return (
        f"nodes of {cluster.gpus_per_node}, {cluster.scale_out.bandwidth * 8 / 1e9:g} Gbit/s "
        f"per GPU between them ({origin})"
    )


def with_host_memory(cluster: ClusterSpec, gpu: GpuSpec, host_memory: float | None) -> ClusterSpec:
    """The cluster with a host memory of a node [bytes]; default: 2.5 times the GPUs' memory.

    Raises SearchSpaceError if the size is impossible.
    """
    if host_memory is not None:
        if gpu.unified_memory:
            raise SearchSpaceError(
                f"{gpu.name} and its host have one memory of {format_gib(gpu.memory_capacity)}: "
                "leave out --host-memory."
            )
        if not 0 < host_memory < _MOST_HOST_MEMORY:
            raise SearchSpaceError(
                "--host-memory of a node is more than 0 and less than a million TB, such as 512GiB."
            )
        return replace(cluster, host_memory=host_memory)
    gpu_share = gpu.host.memory_per_gpu if gpu.host is not None else None
    if cluster.host_memory or cluster.host_memory_per_gpu or gpu_share or gpu.unified_memory:
        return cluster
    return replace(cluster, host_memory_per_gpu=_USUAL_HOST_SHARE * gpu.memory_capacity)


def with_nodes(cluster: ClusterSpec, gpus_per_node: int | None) -> ClusterSpec:
    """The cluster with this number of GPUs per node; None: unchanged.

    The fast fabric connects the GPUs of a node, or of several nodes as before.

    Raises SearchSpaceError if no node has that many.
    """
    if gpus_per_node is None or gpus_per_node == cluster.gpus_per_node:
        return cluster
    if gpus_per_node > _MOST_OF_NODE:
        raise SearchSpaceError(f"gpus_per_node is at most {_MOST_OF_NODE:,}: {gpus_per_node:,}.")
    domain = cluster.scale_up.domain_size
    if domain <= cluster.gpus_per_node or domain < gpus_per_node:
        domain = gpus_per_node
    return replace(
        cluster, gpus_per_node=gpus_per_node, scale_up=replace(cluster.scale_up, domain_size=domain)
    )


def with_links(gpu: GpuSpec, cluster: ClusterSpec, request: Request) -> tuple[GpuSpec, ClusterSpec]:
    """The GPU and the cluster with links at the requested shares of their bandwidth.

    Raises SearchSpaceError if a share is invalid.
    """
    name, up, out = "intra_node_efficiency", cluster.scale_up, cluster.scale_out
    inside = share_of_peak(request.intra_node_efficiency, "byte/s", up.bandwidth, name)
    if inside is not None:
        gpu = with_link_share(gpu, up.kind, inside)
    name = "inter_node_efficiency"
    between = share_of_peak(request.inter_node_efficiency, "byte/s", out.bandwidth, name)
    if between is not None:
        cluster = replace(cluster, scale_out=replace(out, efficiency=between))
    return gpu, cluster


def share_of_peak(
    efficiency: float | str | None, dimension: str, peak: float, name: str
) -> float | None:
    """The share of a peak, from a number or from a rate with a unit; None: not specified.

    Raises SearchSpaceError if the share is not in (0, 1], or the rate has no unit.
    """
    if efficiency is None:
        return None
    if isinstance(efficiency, str):
        try:
            share = parse_quantity(efficiency, dimension) / peak
        except ValueError as error:
            raise SearchSpaceError(f"{name}: {error}.") from error
    else:
        share = efficiency
    if not 0 < share <= 1:
        raise SearchSpaceError(
            f"{name} = {efficiency} is {share:.4g} of the peak; it must be above 0 and at most 1."
        )
    return share

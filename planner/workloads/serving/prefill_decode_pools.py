"""Pools of prefill workers and of decode workers, as candidates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from planner.base.arrays import BoolArray, CodeArray, FloatArray, IndexArray
from planner.base.csv_cells import Value
from planner.base.enums import Quantization
from planner.base.records import record
from planner.confidence.evidence import disaggregated_group
from planner.configurations.configuration_tables import SERVING_NAMES, PoolConfigurations
from planner.configurations.possible_parts import count_codes
from planner.estimators.inference.batch_share import ServingInputs
from planner.estimators.inference.continuous_batching import (
    decode_steps,
    prefix_share,
    request_overhead,
    tokens_per_step,
)
from planner.estimators.inference.disaggregated import (
    DecodeWorkers,
    DisaggregatedRun,
    Pools,
    PrefillWorkers,
    cache_transfer_time,
    disaggregated_run,
    requests_at_rate,
    token_time_at_rate,
)
from planner.estimators.inference.percentiles import PoolSpread
from planner.estimators.inference.prefix_hits import (
    PrefixCaches,
    ReplicaLoad,
    cache_sizes,
    caches_at,
)
from planner.estimators.ownership_cost import outlay
from planner.estimators.power_draw import PowerDraw, power_draw
from planner.formulas.power import board_share
from planner.optimize.goals import Constraint, Objective
from planner.optimize.problem import confidence_factor, limit_on_predictions
from planner.optimize.source import Block, Columns, InputsChange, Need
from planner.specs.operating_terms import OperatingTerms
from planner.specs.power import PowerProfile
from planner.workloads.assumptions import pool_complexity
from planner.workloads.prediction_confidence import serving_memory_errors
from planner.workloads.serving.prefill_decode_search import (
    PrefillDecodeSpace,
    headroom,
    pair_workers,
)
from planner.workloads.serving.results import (
    ATTENTION_FFN,
    DISAGGREGATED,
    PARAMETERS,
    Deployments,
    ServiceLevels,
    ServingSource,
    cache_of,
    fit_probability,
    image_columns,
    memory_columns,
    needed_memory,
    parameter_columns,
    prefix_cache_columns,
)
from planner.workloads.workload import floats, repeated


@record(kw_only=True)
class PrefillDecodeSource(ServingSource):
    """Pools of prefill and decode workers; ``inputs`` and ``site`` are the decode workers'."""

    inputs: ServingInputs
    space: PrefillDecodeSpace
    site: OperatingTerms
    prefill_site: OperatingTerms
    mesh: None = None
    mode: str = DISAGGREGATED

    block_rows = 0
    published = "disagg"

    def with_rate_confidence(self, confidence: float) -> PrefillDecodeSource:
        """The source whose plans reach a specified request rate with this ``confidence``."""
        if self.space.request_rate is None:
            return self
        share = confidence_factor(self, "request_rate", confidence, -1) or 1.0
        space = replace(self.space, request_rate=self.space.request_rate / share)
        return replace(self, space=space)

    def evidence_groups(self, configurations: Any) -> IndexArray:
        """The group of evidence of all pools of the source."""
        quantization = Quantization(int(self.space.decode_mesh.values("quantization")[0]))
        load = int(self.load_of(self.space.offered_concurrency or 1))
        is_split = self.mode == ATTENTION_FFN
        return np.asarray(disaggregated_group(quantization, load, attention_ffn=is_split))

    @property
    def serves_rate(self) -> bool:
        """Whether requests arrive at a rate."""
        return super().serves_rate or self.space.request_rate is not None

    @property
    def gpus(self) -> tuple[str, ...]:
        """Names of the GPUs of both pools."""
        return self.gpu, self.prefill_gpu

    @property
    def prefill_gpu(self) -> str:
        """Name of the GPU of the prefill workers."""
        return self.space.prefill_setting.machine.gpu.name

    @property
    def sites(self) -> tuple[OperatingTerms, ...]:
        """The operating terms of both pools."""
        return self.prefill_site, self.site

    @property
    def question_columns(self) -> Mapping[str, Value]:
        """The tokens of a request, and the price of a GPU."""
        prefill = {f"prefill_{name}": value for name, value in self.prefill_site.columns.items()}
        return {**super().question_columns, **prefill}

    def changed(self, change: InputsChange) -> PrefillDecodeSource:
        """The source with ``change`` applied to the settings of both pools."""
        inputs, before = change(self.inputs), change(self.space.prefill_setting)
        space = replace(self.space, prefill_setting=before, decode_setting=inputs)
        return replace(self, inputs=inputs, space=space)

    def broken(self, configurations: PoolConfigurations) -> CodeArray:
        """The one-based number of the first rule that rejects either worker; 0: none."""
        return self.judged(configurations).rejected_by

    def judged(
        self, configurations: PoolConfigurations, broken: CodeArray | None = None
    ) -> PrefillDecodeDeployments:
        """Predict times, rates and memory of every pair of prefill and decode workers."""
        c = configurations
        prefill = self.space.prefilling(c.prefill, c.prefill_replicas)
        decode = self.space.decoding(c.decode)
        codes = np.where(prefill.rejected_by > 0, prefill.rejected_by, decode.rejected_by)
        numbers = c.prefill_replicas, c.replicas
        return self.deployed(prefill, decode, *numbers, codes, c.concurrency)

    @property
    def with_immediate_admission(self) -> PrefillDecodeSource:
        """The source in which all requests must fit in memory at once."""
        return replace(self, space=replace(self.space, waits=False))

    def deployed(
        self,
        prefill: PrefillWorkers,
        decode: DecodeWorkers,
        num_prefill: FloatArray,
        num_decode: FloatArray,
        rejected_by: CodeArray,
        offered_concurrency: FloatArray | None = None,
    ) -> PrefillDecodeDeployments:
        """Deployments of ``num_prefill`` and ``num_decode`` workers; arrays broadcast.

        ``offered_concurrency``: concurrency of each decode worker, waiting requests included;
        None: that of the worker.
        """
        c = PoolConfigurations.combine_workers(
            prefill.configurations, decode.configurations, num_prefill, num_decode
        )
        if offered_concurrency is not None:
            c = replace(c, concurrency=offered_concurrency + np.zeros_like(c.concurrency))
        pools = self._pools(prefill, decode, c)
        run = disaggregated_run(self.inputs, pools, c.replicas * c.concurrency)
        number, work = self.inputs.workload.num_requests, self.inputs.workload
        deployments = PrefillDecodeDeployments(
            source=self,
            configurations=c,
            rejected_by=rejected_by,
            prefill=prefill,
            decode=decode,
            pools=pools,
            run=run,
            promises=ServiceLevels(
                num_gpus=c.num_gpus,
                request_rate=run.request_rate,
                time_to_first_token=run.time_to_first_token,
                time_per_output_token=run.time_per_output_token,
                memory_headroom=np.minimum(headroom(prefill), headroom(decode)),
                price=self.price(c),
                makespan=None if number is None else number / run.request_rate,
            ),
        )
        return deployments if number is None or work.request_rate is None else deployments.at_load

    def price(self, c: PoolConfigurations) -> FloatArray:
        """The price of the GPUs of both pools [USD/s]."""
        prefill, decode = _pool_sizes(c)
        if self.prefill_site == self.site:
            return self.site.rate(prefill + decode)
        return self.prefill_site.rate(prefill) + self.site.rate(decode)

    def _pools(
        self, prefill: PrefillWorkers, decode: DecodeWorkers, c: PoolConfigurations
    ) -> Pools:
        """Times [s] and capacities of prefill and decode workers, with the KV-cache transfer."""
        domain = self.inputs.machine.cluster.scale_up.domain_size
        inside = np.asarray((self.gpu == self.prefill_gpu) & (c.num_gpus <= domain))
        moved = np.maximum(_transfer_time(prefill, inside), _transfer_time(decode, inside))
        return Pools(
            prompt_time=prefill.prompt_time,
            service_time=prefill.service_time,
            transfer_time=moved,
            prefill_workers=c.prefill_replicas,
            decode_workers=c.replicas,
            fixed=decode.fixed,
            slope=decode.slope,
            places=c.replicas * decode.places,
            stream_interval=np.asarray(float(self.inputs.engine.scheduler.stream_interval)),
        )

    def blocks(
        self,
        goals: Sequence[Objective],
        limits: Sequence[Constraint],
        *,
        in_order: bool = True,
    ) -> Iterator[Block]:
        """Yield all rejected workers as counts, then the pairs of undominated workers in blocks."""
        predicted = [limit_on_predictions(limit, self) for limit in limits]
        prefill, decode = self.space.prefill(), self.space.decode()
        dropped = self._rejected(prefill) + self._rejected(decode)
        yield Block(candidates=None, dropped=dropped, num_rows=0)
        codes: CodeArray = np.zeros((), dtype=np.int8)
        for pair in pair_workers(self.space, prefill, decode, goals, predicted):
            pools = self.deployed(
                pair.prefill,
                pair.decode,
                pair.num_prefill,
                pair.num_decode,
                codes,
                None
                if self.space.offered_concurrency is None
                else np.asarray(self.space.offered_concurrency),
            )
            yield Block(candidates=pools, dropped=np.zeros_like(dropped), num_rows=0)

    def _rejected(self, workers: PrefillWorkers | DecodeWorkers) -> IndexArray:
        """The number of workers that each rule rejects, by number of the rule."""
        codes = np.broadcast_to(workers.rejected_by, workers.configurations.shape)
        counts = count_codes(codes, len(self.rules))
        counts[0] = 0
        return counts[None]


@record(kw_only=True, repr=False)
class PrefillDecodeDeployments(Deployments):
    """Deployments of prefill and decode workers."""

    source: PrefillDecodeSource
    configurations: PoolConfigurations
    prefill: PrefillWorkers
    decode: DecodeWorkers
    pools: Pools
    run: DisaggregatedRun

    @property
    def inputs(self) -> ServingInputs:
        """The setting of the decode workers, with the prefix-cache hits of the prefill workers."""
        return replace(self.source.inputs, prefixes=self.prefill.prefixes)

    def moved(self, source: PrefillDecodeSource) -> PrefillDecodeDeployments:
        """The pools with the operating terms (prices, power) of ``source``; same predictions."""
        promises = replace(self.promises, price=source.price(self.configurations))
        return replace(self, source=source, promises=promises)

    @property
    def held(self) -> PoolConfigurations:
        """The configurations with the concurrency that fits in the decode workers' memory."""
        c, concurrency = self.configurations, self.decode.configurations.concurrency
        return replace(c, concurrency=concurrency + np.zeros_like(c.concurrency))

    @property
    def load(self) -> FloatArray:
        """Share of the time in which the prefill workers compute prompts."""
        return self.run.load

    @property
    def in_flight(self) -> FloatArray:
        """Requests of one decode worker in flight, including requests still in prefill."""
        c, run = self.configurations, self.run
        if self.promises.capacity is None:
            return np.asarray(c.concurrency)
        latency = self.request_latency - request_overhead(self.inputs)
        rate = run.request_rate if self.promises.makespan is None else self.request_rate
        return np.asarray(rate * latency / c.replicas)

    @property
    def queued_prompt(self) -> FloatArray:
        """0 s: the wait for prefill is part of the queueing delay."""
        return np.zeros(())

    @property
    def last_answer(self) -> FloatArray:
        """0 s: decode workers compute no prompts."""
        return np.zeros(())

    @property
    def decoding(self) -> FloatArray:
        """Sequences in a step of one decode worker: all batch slots, or fewer at a set load."""
        if self.promises.capacity is None:
            return self.decode.places
        steps = decode_steps(self.inputs) + 1
        step = self.time_per_output_token * tokens_per_step(self.inputs)
        number = self.run.request_rate * steps * step / self.configurations.replicas
        return np.asarray(np.clip(number, 1.0, self.decode.places))

    def token_time_at_rate(self, rate: float) -> FloatArray:
        """Seconds per output token at a request rate [1/s]."""
        seconds: FloatArray = token_time_at_rate(self.inputs, self.pools, np.asarray(rate))
        return seconds

    def at_rate(self, rate: float) -> PrefillDecodeDeployments:
        """The deployments at a total request rate [1/s]."""
        c = self.configurations
        number = requests_at_rate(self.inputs, self.pools, np.asarray(rate))
        slots = c.replicas * self.held.concurrency
        run = disaggregated_run(self.inputs, self.pools, np.minimum(number, slots))
        one_pool = np.ones(())
        offered = self.offered(rate, one_pool, slots)
        promises = self.promised_at(
            offered=offered,
            replicas=one_pool,
            carried=run.request_rate,
            first=run.time_to_first_token + offered.mean_wait,
            token=run.time_per_output_token,
        )
        return replace(self, run=run, promises=promises)

    def percentile(self, quantity: str, share: float) -> FloatArray:
        """The latency [s] that a ``share`` of the requests does not exceed."""
        decode = self.decode
        spread = PoolSpread(
            inputs=self.inputs, run=self.run, fixed=decode.fixed, slope=decode.slope
        )
        seconds, offered = spread.percentile(quantity, share), self.promises.offered
        if offered is None or quantity == "time_per_output_token":
            return seconds
        return seconds + offered.wait_within(share)

    def complexity_at(self, rows: IndexArray) -> IndexArray:
        """The complexity of some plans: higher than of any replicas without pools."""
        prefill, c = self.source.space.prefill_setting, self.configurations.rows(rows)
        num_gpus, load = self.at(self.num_gpus, rows), self.at(self.load, rows)
        return pool_complexity(prefill, self.inputs, c, num_gpus, load)

    @property
    def memory(self) -> tuple[Need, Need]:
        """(Needed, usable) bytes of host and GPU memory, of the worker that does not fit."""
        decode = self.decode
        worker = decode if np.any(decode.rejected_by) else self.prefill
        cache = cache_of(worker.memory, worker.configurations.concurrency)
        host, (needed, usable) = needed_memory(
            worker.inputs, worker.memory, worker.configurations, cache
        )
        if isinstance(worker, DecodeWorkers) and worker.ffn_memory is not None:
            needed = np.maximum(needed, worker.ffn_memory.total)
        return host, (needed, usable)

    def fit_probability_at(self, rows: IndexArray) -> FloatArray:
        """The probability that GPUs of prefill and decode workers have enough memory, by row.

        Both kinds run the same model on the same engine, so the lower probability counts.
        """

        def chance(worker: PrefillWorkers | DecodeWorkers) -> FloatArray:
            """The probability that the GPUs of the workers at ``rows`` have the memory to start."""
            return fit_probability(
                worker.inputs,
                worker.memory,
                worker.configurations,
                lambda values: self.at(values, rows),
            )

        chances = [chance(self.prefill), chance(self.decode)]
        if (ffn := self.decode.ffn_memory) is not None:
            errors = serving_memory_errors(self.decode.inputs)
            needed, usable = self.at(ffn.total, rows), self.at(ffn.usable, rows)
            chances.append(errors.fit_probability(predicted=needed, usable=usable))
        return np.asarray(np.minimum.reduce(chances))

    @property
    def draws(self) -> tuple[PowerDraw, ...]:
        """The electric power of the prefill workers and of the decode workers."""
        c, load = self.configurations, self.load

        def prefill(profile: PowerProfile) -> FloatArray:
            active, waiting = profile.prefill.value, profile.idle.value
            return board_share(active=active, waiting=waiting, time_share=load)

        number = c.prefill_replicas * self.prefill.configurations.replica_gpus
        sites, machine = self.source, self.source.space.prefill_setting.machine
        return (
            power_draw(machine, sites.prefill_site.power, number, prefill, self.num_gpus),
            power_draw(
                self.inputs.machine,
                sites.site.power,
                self.num_gpus - number,
                lambda profile: profile.decode.value,
                self.num_gpus,
            ),
        )

    @property
    def outlay(self) -> FloatArray | None:
        """USD for one contract term of both pools, or for buying them; None: a pool has no term."""
        source, (prefill, decode) = self.source, _pool_sizes(self.configurations)
        if source.prefill_site == source.site:
            return outlay(source.site, prefill + decode)
        paid = outlay(source.prefill_site, prefill), outlay(source.site, decode)
        return None if paid[0] is None or paid[1] is None else paid[0] + paid[1]

    @property
    def prompt_price(self) -> FloatArray:
        """The price of all GPUs of prefill workers, busy or idle [USD/s]."""
        source, (prefill, decode) = self.source, _pool_sizes(self.configurations)
        if source.prefill_site == source.site:
            return self.promises.price * (prefill / (prefill + decode))
        return source.prefill_site.rate(prefill)

    @property
    def caches(self) -> PrefixCaches:
        """The prefix caches of the prefill workers, at the answered rate."""
        c, workers = self.prefill.configurations, self.configurations.prefill_replicas
        load = ReplicaLoad(replicas=workers, rate=self.request_rate, running=c.concurrency)
        return caches_at(self.inputs, c, self.prefill.memory, load)

    @property
    def cache_sizes(self) -> tuple[FloatArray, ...]:
        """Bytes of each prefix cache, with host memory and drives."""
        return cache_sizes(self.inputs, self.prefill.memory)

    @property
    def prefix_share(self) -> FloatArray:
        """The share of prefill time that attention to cached tokens takes."""
        inputs = replace(self.source.space.prefill_setting, prefixes=self.prefill.prefixes)
        return prefix_share(inputs, self.prefill.configurations)

    def columns(self) -> Columns:
        """The result columns: source, both kinds of workers, service levels, decode memory."""
        if self.at_load is not self:
            return self.at_load.columns()
        c, shape = self.configurations, self.shape
        replicas, *prefill = (name for name in c.names() if name not in SERVING_NAMES)
        return {
            **self.named(),
            **parameter_columns(c, (replicas, *PARAMETERS)),
            **repeated({"prefill_gpu": self.source.prefill_gpu}, shape),
            **parameter_columns(c, prefill),
            "transfer_time_s": floats(self.pools.transfer_time, shape),
            **self.promised(),
            "utilization": floats(self.load, shape),
            **image_columns(
                self.prefill.inputs,
                self.prefill.configurations,
                self.request_rate / c.prefill_replicas,
                shape,
            ),
            **prefix_cache_columns(self.prefill.prefixes, shape),
            **memory_columns(
                self.decode.inputs, self.decode.fullest, self.decode.configurations, shape
            ),
            **self.preempted(self.decode.memory, c),
        }


def _transfer_time(workers: PrefillWorkers | DecodeWorkers, inside: BoolArray) -> FloatArray:
    """Seconds to transfer a KV cache: on the fast fabric if ``inside``, else on the network."""
    if not inside.any():
        return workers.transfer_time
    fabric = cache_transfer_time(workers.inputs, workers.configurations, inside_fabric=True)
    return np.where(inside, fabric, workers.transfer_time)


def _pool_sizes(c: PoolConfigurations) -> tuple[FloatArray, FloatArray]:
    """GPUs of the prefill and of the decode workers."""
    prefill = np.asarray(c.prefill_replicas * c.prefill.replica_gpus, dtype=np.float64)
    return prefill, np.asarray(c.replicas * c.replica_gpus, dtype=np.float64)

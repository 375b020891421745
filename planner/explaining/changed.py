"""Plans of one configuration with other specs, other terms, another question."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from planner.base.records import record
from planner.errors import PlannerError
from planner.optimize.collector import first_row
from planner.optimize.source import Source
from planner.plan.plan import Plan, evaluated, one_configuration
from planner.question.request import Request
from planner.specs.checked import unchecked
from planner.workloads.base import Evaluation

_SITES = ("site", "prefill_site")
_SPECS_OF_SITES = ("reliability", "power", "offer")


@record(kw_only=True)
class Outcome:
    """What a changed plan reaches: its ``row`` of result columns, or why it is impossible."""

    row: Mapping[str, Any] | None
    reason: str = ""


Changing = Callable[[Plan], Plan]
"""A change of a plan of one configuration."""


def outcome(plan: Plan, change: Changing, burst: int | None = None) -> Outcome:
    """A plan predicted whole with a change; what is impossible with it is told, not raised."""
    try:
        other = change(plan)
        found = evaluated(other, burst)
    except PlannerError as error:
        return Outcome(row=None, reason=str(error))
    if found.rejected_by:
        return Outcome(row=None, reason=broken(other, found))
    return Outcome(row=first_row(found.table()))


def broken(plan: Plan, found: Evaluation) -> str:
    """What rejects a configuration, in words, with what is to blame."""
    name = found.rejected_by
    rules = {rule.name: rule.description for rule in found.source.rules}
    words = rules.get(name, f"it misses the limit {name}")
    blamed = plan.workload.wording.blamed(found.candidates, name)
    return f"{words}: {blamed}" if blamed else words


def asked(**answers: Any) -> Changing:
    """Other answers to questions: the specs are read and the plan is made anew."""

    def change(plan: Plan) -> Plan:
        return requested(replace(plan.request, **answers))

    return change


def requested(request: Request) -> Plan:
    """The plan of a request for one configuration."""
    return one_configuration(request)


def scaled(kind: str, paths: Sequence[str], factor: float) -> Changing:
    """Numbers of the specs of a kind times a factor: ``gpu``, ``cluster``, a profile, a site."""

    def change(plan: Plan) -> Plan:
        (source,) = plan.problem.sources
        other = _of_source(source, kind, paths, factor)
        return replace(plan, problem=replace(plan.problem, sources=(other,)))

    return change


def _of_source(source: Source, kind: str, paths: Sequence[str], factor: float) -> Source:
    if kind in _SPECS_OF_SITES:
        sites = {name: getattr(source, name) for name in _SITES if hasattr(source, name)}
        return replace(  # type: ignore[type-var]
            source,
            **{
                name: replace(site, **{kind: _scaled(getattr(site, kind), paths, factor)})
                for name, site in sites.items()
                if getattr(site, kind) is not None
            },
        )
    return source.changed(lambda setting: _of_setting(setting, kind, paths, factor))


def _of_setting(setting: Any, kind: str, paths: Sequence[str], factor: float) -> Any:
    machine = setting.machine
    if kind == "gpu":
        gpu = _scaled(_measured_elsewhere(machine.gpu), paths, factor)
        return replace(setting, machine=replace(machine, gpu=gpu))
    if kind == "cluster":
        cluster = _scaled(machine.cluster, paths, factor)
        return replace(setting, machine=replace(machine, cluster=cluster))
    return replace(setting, **{kind: _scaled(getattr(setting, kind), paths, factor)})


def _measured_elsewhere(gpu: Any) -> Any:
    """A GPU whose table of measured products says on which memory it was measured."""
    efficiency = gpu.efficiency
    if not efficiency.gemm_table or efficiency.gemm_table_bandwidth is not None:
        return gpu
    other = unchecked(efficiency, gemm_table_bandwidth=gpu.memory_bandwidth)
    return unchecked(gpu, efficiency=other)


def _scaled(spec: Any, paths: Sequence[str], factor: float) -> Any:
    for path in paths:
        spec = _at(spec, path.split("."), factor)
    return spec


def _at(spec: Any, keys: Sequence[str], factor: float) -> Any:
    """A spec with the numbers at a path times a factor; ``*`` stands for all of a table."""
    if not keys:
        return spec * factor if isinstance(spec, int | float) else spec
    key, *others = keys
    if isinstance(spec, Mapping):
        names = spec if key == "*" else [name for name in spec if str(name) == key]
        return {**spec, **{name: _at(spec[name], others, factor) for name in names}}
    if spec is None or getattr(spec, key, None) is None:
        return spec
    return unchecked(spec, **{key: _at(getattr(spec, key), others, factor)})

"""Profiles of frameworks and engines, which may build on another one of their kind.

Parameters
----------
folder : folder of own spec files, searched first; None: working directory and shipped files
engine : engine profile
gpu : GPU; None: unknown, as a small GPU
release : release, such as "0.11.0"; empty: the newest
name : name, alias or path of the spec
path : file of the profile
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

from planner.base.read_files import require_table
from planner.errors import SpecError
from planner.specs.engine import EngineMemory, EngineProfile, FrontEnd, SchedulerDefault
from planner.specs.file_cache import cache_between_runs
from planner.specs.framework import FrameworkProfile
from planner.specs.gpu import GpuSpec, merge_tables
from planner.specs.hardware import LoadedSpec, load_spec
from planner.specs.spec_files import Spec, read_toml
from planner.specs.spec_paths import SpecKind, find

EXTENDS = "extends"
_NOT_INHERITED = ("current", "name", "aliases", "notes", "since")


def runs_on(profile: FrameworkProfile | EngineProfile, gpu: GpuSpec) -> bool:
    """Return whether a framework or an engine has kernels for a GPU.

    Parameters
    ----------
    profile : framework or engine profile
    gpu : GPU
    """
    is_of_vendor = not profile.vendors or gpu.vendor in profile.vendors
    return is_of_vendor and gpu.architecture not in profile.without_architectures


def release_parts(number: str) -> tuple[int, ...]:
    """Return the numbers of a release, for comparison.

    Parameters
    ----------
    number : release, such as ``0.6.3.post1``

    >>> release_parts("0.6.3.post1")
    (0, 6, 3, 1)
    """
    return tuple(map(int, re.findall(r"\d+", number)))


def is_before(stated: object, release: str) -> bool:
    """Whether a release is before another.

    Parameters
    ----------
    stated : release that a user names; None: the newest
    release : other release; candidates such as ``1.3.0rc15`` are before the final one

    >>> [is_before(number, "1.3.0rc15") for number in ("1.3.0rc3", "1.2", "1.3.0", "1.3", None)]
    [True, True, False, False, False]
    """
    if stated is None:
        return False
    parts, final = release_parts(str(stated)), release_parts(release.partition("rc")[0])
    return parts < release_parts(release) and parts != final[: len(parts)]


def scheduler_default(
    engine: EngineProfile, gpu: GpuSpec | None, release: str = ""
) -> SchedulerDefault | None:
    """Return an engine's scheduler defaults on a GPU in a release; None without such defaults."""
    name, memory = ("", 0.0) if gpu is None else (gpu.name.lower(), gpu.memory_capacity)
    parts = release_parts(release)
    for default in engine.scheduler.defaults:
        is_for = not default.gpus or name.startswith(default.gpus)
        if not is_for or name.startswith(default.other_gpus) or memory < default.least_memory:
            continue
        is_over = bool(default.until) and not (parts and parts < release_parts(default.until))
        if not is_over and not (parts and parts < release_parts(default.since)):
            return default
    return None


def engine_on(
    engine: EngineProfile, gpu: GpuSpec | None, release: str = "", *, offline: bool = False
) -> EngineProfile:
    """Return the engine with its scheduler defaults on a GPU, and its cache, in a release.

    Parameters
    ----------
    offline : a program loads the engine, without a server
    """
    memory = _memory_of_release(engine.memory, release_parts(release))
    front_end = None if offline else _front_end_of_release(engine.front_end, release_parts(release))
    if memory is not engine.memory or front_end is not engine.front_end:
        engine = replace(engine, memory=memory, front_end=front_end)
    default = scheduler_default(engine, gpu, release)
    if default is None:
        return engine
    tokens = default.offline_batched_tokens if offline else default.max_num_batched_tokens
    seqs = default.max_num_seqs
    scheduler = replace(
        engine.scheduler,
        max_num_seqs=seqs,
        max_num_batched_tokens=tokens,
        captured_seqs=default.captured_seqs,
    )
    # It samples as many at its start as it may run at once.
    memory = replace(memory, profiled_seqs=seqs if memory.profiled_seqs else 0)
    return replace(engine, scheduler=scheduler, memory=memory)


def _memory_of_release(memory: EngineMemory, release: tuple[int, ...]) -> EngineMemory:
    """Return what an engine keeps in its cache, and asks of it, in a release; (): the newest."""
    since = release_parts(memory.latent_cache_since)
    if since and not (release and release < since):
        memory = replace(memory, expanded_latent_width=0)
    bounds = [release_parts(bound) for bound in memory.whole_cache_releases]
    if bounds and bounds[0] <= release < bounds[1]:
        memory = replace(memory, whole_cache_per_stage=True)
    return memory


def _front_end_of_release(front_end: FrontEnd | None, release: tuple[int, ...]) -> FrontEnd | None:
    """Return the processes that a server has in a release; (): the newest."""
    if front_end is None:
        return front_end
    bounds = iter(map(release_parts, front_end.template_releases))
    if not any(since <= release < until for since, until in zip(bounds, bounds, strict=True)):
        front_end = replace(front_end, template_time=0.0)
    if not front_end.per_rank_since:
        return front_end
    since = release_parts(front_end.per_rank_since)
    return replace(front_end, per_rank=not (release and release < since))


def load_framework(name: str, folder: Path | None = None) -> LoadedSpec[FrameworkProfile]:
    """Load a framework profile by name, alias or path, with the source of each number.

    Raises SpecError if the profile is unknown, or its file or one that it extends has errors.
    """
    return _load(SpecKind.FRAMEWORKS, FrameworkProfile, name, folder)


def load_engine(name: str, folder: Path | None = None) -> LoadedSpec[EngineProfile]:
    """Load an engine profile by name, alias or path, with the source of each number.

    Raises SpecError if the profile is unknown, or its file or one that it extends has errors.
    """
    return _load(SpecKind.ENGINES, EngineProfile, name, folder)


def kind_of_profile(path: Path, folder: Path | None = None) -> SpecKind:
    """Return whether a file is a profile of an engine or of a framework.

    Raises SpecError if the file cannot be read.
    """
    table = read_toml(path)
    if EXTENDS in table:
        try:
            table, _ = profile_table(SpecKind.ENGINES, path, folder)
        except SpecError:
            return SpecKind.FRAMEWORKS
    return SpecKind.ENGINES if "scheduler" in table else SpecKind.FRAMEWORKS


def profile_table(
    kind: SpecKind, path: Path, folder: Path | None = None, seen: tuple[Path, ...] = ()
) -> tuple[dict[str, object], tuple[Path, ...]]:
    """Return a profile's tables merged over its parents (``extends``), and the parents' files.

    Name, aliases, notes and first release are not inherited.

    Raises SpecError if a file cannot be read, or extends itself or an unknown file.

    Parameters
    ----------
    kind : kind of spec, such as ``gpus``
    seen : files that extend this one, to detect cycles
    """
    table = read_toml(path)
    if EXTENDS not in table:
        return table, ()
    parent = table.pop(EXTENDS)
    below = _parent(kind, parent, path, folder)
    lineage = (*seen, Path(os.path.realpath(path)))
    if Path(os.path.realpath(below)) in lineage:
        raise SpecError(f"{path}: extends leads back to {parent!r}.")
    inherited, others = profile_table(kind, below, folder, lineage)
    not_inherited = {key: table[key] for key in _NOT_INHERITED if key in table}
    inherited_keys = {key: value for key, value in inherited.items() if key not in _NOT_INHERITED}
    return require_table(merge_tables(not_inherited | inherited_keys, table), str(path)), (
        below,
        *others,
    )


@cache_between_runs
def _load(kind: SpecKind, profile: type[Spec], name: str, folder: Path | None) -> LoadedSpec[Spec]:
    path = find(kind, name, folder)
    table, others = profile_table(kind, path, folder)
    return load_spec(profile, table, path, *others)


def _parent(kind: SpecKind, parent: object, path: Path, folder: Path | None) -> Path:
    """Return the path of the profile that the ``extends`` key of a profile names."""
    if not isinstance(parent, str):
        raise SpecError(f"{path}: extends must be the name or the path of a profile.")
    try:
        name = str(path.parent / parent) if parent.endswith(".toml") else parent
        return find(kind, name, folder)
    except SpecError as error:
        raise SpecError(f"{path}: extends: {error}") from error

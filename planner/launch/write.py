"""From a plan to the files that start it, and from such a file to the plan beside it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np

from planner.base.files import written_whole
from planner.base.reading import read_bytes, read_json
from planner.base.records import record
from planner.base.version import __version__
from planner.configurations.table import TrainingConfigurations
from planner.configurations.training_rules import unsupported
from planner.errors import LaunchError, OutputError, PlannerError, SpecError
from planner.launch import MANIFEST, WRAPPERS
from planner.launch.job import Job
from planner.launch.target import Draft, File, Target
from planner.launch.targets import target_of
from planner.launch.wrappers import wrapper_of
from planner.question.request import Request
from planner.question.terms import terms_about
from planner.specs.catalogue import Catalogue
from planner.workloads.pinned import PLAN_FILE, PinnedPlan
from planner.workloads.plan import evaluated, one_configuration
from planner.workloads.registry import workload_of

_OF_PEFT = ("transformers", "deepspeed", "accelerate", "axolotl")
# What may be said beside a target whose documents a cluster takes as they are.
_AS_THEY_ARE = (WRAPPERS[0], "kubernetes")


@record(kw_only=True)
class Launch:
    """What starts a plan; the plan itself is the last of the files."""

    target: Target
    wrapper: str
    job: Job
    draft: Draft
    files: tuple[File, ...]

    @property
    def starts(self) -> tuple[str, ...]:
        """What the user does to start it, in order."""
        return tuple(line for file in self.files for line in file.start.splitlines())


def launch_of(request: Request, target: str, wrapper: str) -> Launch:
    """The files that start the one configuration of a request.

    Raises
    ------
    SpecError, SearchSpaceError, InfeasibleError
        The request names what is unknown, is no single configuration, or cannot run.
    LaunchError
        Target or wrapper is unknown, or cannot start the plan.
    """
    tool, wrapped = target_of(target), wrapper_of(wrapper)
    job = Job.of(request)
    if job.learns_preferences:
        raise LaunchError(
            f"No launch file of {job['training_objective']} is written: start from one of yours, "
            "`planner estimate --from FILE --write`."
        )
    usual = str(getattr(job.profile, "expert_adapters", "none"))
    if tool.name not in _OF_PEFT and (job["expert_adapters"] or usual) != usual:
        raise LaunchError(
            f"{tool.title}: expert_adapters {job['expert_adapters']} is not written, its own is "
            f"{usual}: leave it out, or start from a file of yours."
        )
    draft = tool.drafted(job)
    if not draft.processes:  # it writes whole documents, which need nothing around them
        if wrapper not in _AS_THEY_ARE:
            raise LaunchError(
                f"{tool.title} starts its own documents on Kubernetes: leave --wrapper {wrapper} "
                "out, or choose the target of the engine."
            )
        wrapped = wrapper_of(WRAPPERS[0])
    plan = File(name=PLAN_FILE, text=job.pinned.to_toml(), meaning="the plan")
    files = (*wrapped(tool, job, draft), plan)
    return Launch(target=tool, wrapper=wrapper, job=job, draft=draft, files=files)


def with_profiles(request: Request, target: str) -> Request:
    """The request with the target's frameworks or engines, or the nearest, if it names none."""
    tool = target_of(target)
    profiles = tool.profiles or tool.nearest
    kind = workload_of(request.workload).profile_kind
    is_open = getattr(request, kind) is None and request.space is None
    if not (is_open and profiles and request.workload in tool.workloads):
        return request
    several = profiles if len(profiles) > 1 else profiles[0]
    if kind == "framework":
        return replace(request, framework=several)
    return replace(request, engine=several)


def translated(request: Request, target: str) -> Request:
    """The request as the target's framework or engine runs it, where it is of another.

    Layout, batch, precision and memory stay; the release of an engine does not, a ZeRO stage that
    the framework lacks is its next one, and what tunes how the other computes goes where it has
    no such thing.
    """
    tool, kind = target_of(target), workload_of(request.workload).profile_kind
    profiles = tool.profiles or tool.nearest
    # Whether it fits as it is has no part here: the other may need less.
    plan = one_configuration(request)
    found = evaluated(plan)
    job = Job.of_plan(plan, found)
    own = job.profile
    is_its = own.name in profiles or tool.is_of_release(own)
    if is_its or not profiles or request.workload not in tool.workloads:
        return request
    if kind == "engine":
        return replace(request, engine=profiles[0], engine_version=None)
    profile = Catalogue(request.specs).load_framework(profiles[0]).spec
    configurations = found.candidates.configurations
    asked = unsupported(cast(TrainingConfigurations, configurations), profile)
    lacking = {name for name, where in asked.items() if np.any(where)}
    settings, stage = dict(request.settings), int(job["zero_stage"] or 0)
    stages = profile.zero_stages
    if int(job["pipeline_parallel"]) > 1 and profile.pipeline_parallel:
        stages = profile.pipeline_zero_stages
    if "zero_stage" in lacking:
        settings["zero_stage"] = min((one for one in stages if one > stage), default=max(stages))
    for name in lacking.intersection(terms_about("tuning")):
        settings.pop(name, None)
    return replace(request, framework=profiles[0], settings=settings)


def save_launch(folder: Path, launch: Launch) -> tuple[Path, ...]:
    """Write the files of a launch into a directory, which is made if needed.

    A file that is there is replaced only if it is as planner wrote it.

    Raises
    ------
    OutputError
        A file of the user's stands in the way, or the directory cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        known = {
            name: digest
            for name, digest in written_files(folder).items()
            if not Path(name).is_absolute() and ".." not in Path(name).parts
        }
        _refuse_others(folder, launch.files, known)
        for file in launch.files:
            _write(folder / file.name, file)
        manifest = {
            "version": __version__,
            "target": launch.target.name,
            "target_version": launch.target.version,
            "wrapper": launch.wrapper,
            "files": {file.name: _digest(file.text) for file in launch.files},
        }
        _write(folder / MANIFEST, File(name=MANIFEST, text=json.dumps(manifest, indent=1) + "\n"))
    except OSError as error:
        raise OutputError(f"{folder}: cannot be written ({error.strerror or error}).") from error
    for name in set(known) - {file.name for file in launch.files}:
        path = folder / name
        if os.path.isfile(path) and _digest(_text(path)) == known[name]:
            path.unlink()
    return tuple(folder / file.name for file in launch.files)


def _write(path: Path, file: File) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as stream:
        stream.write(file.text)
    if file.is_executable:
        path.chmod(path.stat().st_mode | 0o111)


def _refuse_others(folder: Path, files: Sequence[File], known: dict[str, str]) -> None:
    """Refuse to replace what the user wrote or changed."""
    for file in files:
        path = folder / file.name
        if not os.path.exists(path):
            continue
        text = _text(path)
        if text != file.text and known.get(file.name) != _digest(text):
            raise OutputError(
                f"{path}: was changed since planner wrote it: nothing is written. Move it, or give "
                "another --output."
            )


def _text(path: Path) -> str:
    """What a file says, as far as one of a launch can; nothing of what is no such file."""
    try:
        return read_bytes(path).decode(errors="replace")
    except SpecError:
        return ""


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", errors="replace")).hexdigest()


def told_by_plan(path: Path, wanted: Iterable[str]) -> tuple[Mapping[str, object], list[str]]:
    """What the plan beside a file of planner says of what the file leaves open.

    Nothing where somebody else wrote the file: `save_launch` keeps a list of its own.
    """
    try:
        is_ours = path.name in written_files(path.parent)
        plan = PinnedPlan.read(path.parent / PLAN_FILE) if is_ours else None
    except PlannerError:
        plan = None
    if plan is None:
        return {}, []
    known = {**plan.answers, **plan.parameters}
    found = {name: known[name] for name in wanted if known.get(name)}
    words = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in found.items())
    return found, [f"As {PLAN_FILE} beside it says: {words}."] if found else []


def written_files(folder: Path) -> dict[str, str]:
    """The digests of the files that planner wrote into a directory, by name; none if it did not."""
    try:
        table = read_json(folder / MANIFEST)
    except SpecError:
        return {}
    listed = table.get("files") if isinstance(table, dict) else None
    names = listed if isinstance(listed, dict) else {}
    return {name: digest for name, digest in names.items() if isinstance(digest, str)}

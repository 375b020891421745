"""From a plan to the files that start it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from planner.base.records import record
from planner.errors import LaunchError
from planner.launch.job import Job
from planner.launch.names import WRAPPERS
from planner.launch.own import PLAN_FILE
from planner.launch.target import Draft, File, Target
from planner.launch.targets import target_of
from planner.launch.wrappers import wrapper_of
from planner.question.request import Request
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
    changed: dict[str, Any] = {kind: several}
    return replace(request, **changed)

"""From a plan to the files that start it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from planner.launch.job import Job
from planner.launch.target import Draft, File, Target
from planner.launch.targets import target_of
from planner.launch.wrappers import wrapper_of
from planner.request import Request

PLAN_FILE = "plan.toml"


@dataclass(frozen=True, kw_only=True)
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
        return tuple(file.start for file in self.files if file.start)


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
    draft = tool.drafted(job)
    plan = File(name=PLAN_FILE, text=job.pinned.to_toml(), meaning="the plan")
    files = (*wrapped(tool, job, draft), plan)
    return Launch(target=tool, wrapper=wrapper, job=job, draft=draft, files=files)


def frameworks_of(target: str, workload: str) -> Sequence[str] | None:
    """Names of the profiles to search with where nobody names one; None where any will do."""
    tool = target_of(target)
    return tool.profiles if workload in tool.workloads and tool.profiles else None

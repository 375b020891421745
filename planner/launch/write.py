"""From a plan to the files that start it."""

from __future__ import annotations

from dataclasses import dataclass

from planner.launch.job import Job
from planner.launch.target import Draft, File, Target
from planner.launch.targets import target_of
from planner.launch.wrappers import wrapper_of
from planner.pinned import PinnedPlan

PLAN_FILE = "plan.toml"


@dataclass(frozen=True, kw_only=True)
class Launch:
    """What starts a plan."""

    target: Target
    job: Job
    draft: Draft
    files: tuple[File, ...]


def launch_of(pinned: PinnedPlan, target: str, wrapper: str = "script") -> Launch:
    """The files that start a plan with a target.

    Raises
    ------
    SpecError, SearchSpaceError, InfeasibleError
        The plan names what is unknown here, or cannot run.
    LaunchError
        Target or wrapper is unknown, or cannot start the plan.
    """
    tool, wrapped = target_of(target), wrapper_of(wrapper)
    job = Job.of(pinned)
    draft = tool.drafted(job)
    plan = File(name=PLAN_FILE, text=pinned.to_toml())
    return Launch(target=tool, job=job, draft=draft, files=(*wrapped(tool, job, draft), plan))

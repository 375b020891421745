"""What is launched: one plan with the specs and the predictions behind it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Self

from planner.base import software_enums
from planner.base.records import record
from planner.base.software_enums import (
    AttentionKernel,
)
from planner.base.training_names import TrainingObjective
from planner.errors import InfeasibleError, LaunchError
from planner.launch.option_table import Quantities
from planner.optimize.collector import full_rows
from planner.question.request import Request
from planner.question.terms import glossary
from planner.specs.framework import FrameworkProfile
from planner.specs.gpu import ClusterSpec, GpuSpec
from planner.specs.model import ModelSpec
from planner.workloads.base import Evaluation
from planner.workloads.deployments import DISAGGREGATED
from planner.workloads.pinned import PinnedPlan
from planner.workloads.plan import Plan, evaluated, one_configuration

_AUTO = "auto"


@record(kw_only=True)
class Job:
    """One plan that is to be started.

    ``row`` has the result columns of its estimate: parameters, derived numbers such as
    ``data_parallel``, predictions with their units in the names. ``profile`` is the framework
    or engine that it was predicted for.
    """

    pinned: PinnedPlan
    model: ModelSpec
    gpu: GpuSpec
    cluster: ClusterSpec
    profile: Any
    row: Mapping[str, Any]

    @classmethod
    def of(cls, request: Request) -> Self:
        """The job of a request for one configuration.

        Raises
        ------
        SpecError, SearchSpaceError
            Something it names is unknown or impossible, or there are several configurations.
        InfeasibleError
            The plan breaks a rule or does not fit: no file would start it.
        """
        plan = one_configuration(request)
        found = evaluated(plan)
        if found.rejected_by:
            raise InfeasibleError(
                f"The plan cannot run ({found.rejected_by}): no launch file was written. "
                "`planner estimate` says why."
            )
        return cls.of_plan(plan, found)

    @classmethod
    def of_plan(cls, plan: Plan, found: Evaluation) -> Self:
        """The job of one configuration that was judged."""
        (row,) = full_rows(found.table(), [found.source])
        source: Any = found.source
        setting = source.setting
        return cls(
            pinned=PinnedPlan.of(plan, row),
            model=setting.model,
            gpu=setting.machine.gpu,
            cluster=setting.machine.cluster,
            profile=setting.framework if plan.workload.name == "train" else setting.engine,
            row=row,
        )

    def __getitem__(self, name: str) -> Any:
        """A parameter, an answer or a result column of the plan; None where it has none."""
        for table in (self.pinned.parameters, self.pinned.answers, self.row):
            if table.get(name) is not None:
                return table[name]
        return None

    def said_once(self, quantities: Quantities) -> dict[str, Any]:
        """What an option table is given: no defaults, and attention as fused or by its kernel."""
        told, terms = dict(quantities), glossary()
        for name in [name for name, value in told.items() if value == _AUTO and name in terms]:
            codes = terms[name].codes
            # How software computes is its framework's where nobody says it.
            if codes is not None and codes.__module__ == software_enums.__name__:
                told[name] = None
        kernel = told.get("attention_kernel")
        if kernel == AttentionKernel.EAGER.word:
            told |= {"attention_kernel": None, "flash_attention": False}
        elif kernel is not None and "flash_attention" in told:
            told["attention_kernel"] = kernel if told["flash_attention"] is not None else None
            told["flash_attention"] = None
        return told

    @property
    def workload(self) -> str:
        """Of the plan."""
        return self.pinned.workload

    @property
    def is_training(self) -> bool:
        """Whether something is trained."""
        return isinstance(self.profile, FrameworkProfile)

    @property
    def learns_preferences(self) -> bool:
        """Whether it is trained on judged answers, not on texts."""
        named = self["training_objective"]
        return named is not None and TrainingObjective(named).is_preference

    @property
    def is_disaggregated(self) -> bool:
        """Whether prompts and answers have workers of their own."""
        return bool(self["mode"] == DISAGGREGATED)

    @property
    def num_gpus(self) -> int:
        """GPUs of the whole job."""
        return int(self["num_gpus"])

    @property
    def gpus_per_node(self) -> int:
        """GPUs of a node that the job uses."""
        return min(self.num_gpus, self.cluster.gpus_per_node)

    @property
    def num_nodes(self) -> int:
        """Nodes of the whole job."""
        return -(-self.num_gpus // self.cluster.gpus_per_node)

    @property
    def data_parallel(self) -> int:
        """Copies of the model, each with data of its own."""
        return int(self["data_parallel"])

    @property
    def accumulation_steps(self) -> int:
        """Micro-batches of a data-parallel rank in a step."""
        return int(self["gradient_accumulation_steps"])

    @property
    def training_steps(self) -> int | None:
        """Steps of the whole run; None where no tokens are asked for."""
        tokens = self["total_tokens"]
        objective = TrainingObjective(self["training_objective"] or TrainingObjective.SFT)
        sequences = self["global_batch_size"] * objective.sequences_per_sample
        each = sequences * self["sequence_length"]
        return max(math.ceil(tokens / each), 1) if tokens else None

    @cached_property
    def hub_name(self) -> str | None:
        """ORG/NAME of the model on Hugging Face, None where none is known."""
        return hub_name(str(self["model"]), *self.model.aliases)

    def require_even_nodes(self) -> None:
        """Refuse GPUs that fill no whole nodes.

        Raises
        ------
        LaunchError
            The last node would have fewer GPUs than the others.
        """
        if self.num_gpus % self.gpus_per_node:
            raise LaunchError(
                f"{self.num_gpus} GPUs are no whole nodes of {self.gpus_per_node}: "
                "launchers need the same number on each; plan another number of GPUs."
            )


def hub_name(*names: str) -> str | None:
    """The first of a model's names that is ORG/NAME on Hugging Face, None if none is."""
    hub = re.compile(r"[^/]+/[^/]+(?<!\.toml)(?<!\.json)", re.DOTALL)
    return next(filter(hub.fullmatch, names), None)

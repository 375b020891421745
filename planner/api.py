"""The public functions: search and estimate, with specs by name or as objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from planner.configurations.enumerate import Mesh
from planner.errors import SpecError
from planner.estimators.machine import Machine
from planner.estimators.share import Setting
from planner.optimize.constraints import constraints as make_constraints
from planner.optimize.exhaustive import Progress, Sink, exhaustive_search
from planner.optimize.objectives import parse_objectives
from planner.optimize.problem import Problem
from planner.optimize.result import SearchResult
from planner.optimize.space import mesh as make_mesh
from planner.specs.catalogue import (
    default_cluster,
    find,
    load_cluster_with_provenance,
    load_gpu_with_provenance,
)
from planner.specs.cluster import ClusterSpec
from planner.specs.framework import FrameworkProfile
from planner.specs.gpu import GpuSpec
from planner.specs.load import digest, read_spec
from planner.specs.model import ModelSpec
from planner.specs.model_catalogue import load_model
from planner.specs.price import price_per_gpu_hour
from planner.specs.search_space import SearchSpace
from planner.specs.workload import TrainingWorkload
from planner.units import HOUR

DEFAULT_GPU = "a100-sxm-80gb"
DEFAULT_SEQUENCE_LENGTH = 2048
DEFAULT_BATCH_TOKENS = 4 * 2**20
DEFAULT_TOKENS_PER_PARAMETER = 20
"""Tokens for a model without a published run: compute-optimal, arXiv:2203.15556."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A problem, with what was chosen for the user.

    ``defaults`` maps each value nobody gave to where it comes from; ``digests`` a spec
    file to the digest of its content; ``assumed`` the numbers whose source is an assumption.
    """

    problem: Problem
    space: SearchSpace
    defaults: Mapping[str, str] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()

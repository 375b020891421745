"""The specs that runs refer to, each read once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from planner.errors import SpecError
from planner.specs.catalogue import find, load_gpu, names
from planner.specs.framework import FrameworkProfile
from planner.specs.gpu import GpuSpec
from planner.specs.load import read_spec
from planner.specs.model import ModelSpec
from planner.specs.model_catalogue import load_model
from planner.specs.paths import SpecKind


@dataclass(kw_only=True)
class Library:
    """Caches of specs by name; ``profiles`` replace the framework profiles of their names."""

    profiles: Mapping[str, FrameworkProfile] = field(default_factory=dict)
    _gpus: dict[str, GpuSpec | None] = field(default_factory=dict, init=False)
    _frameworks: dict[str, FrameworkProfile] = field(default_factory=dict, init=False)

    def gpu(self, name: str) -> GpuSpec | None:
        """A GPU by name or alias, or None where the catalogue lacks it."""
        if name not in self._gpus:
            try:
                find(SpecKind.GPUS, name)
            except SpecError:
                self._gpus[name] = None
            else:
                self._gpus[name] = load_gpu(name)
        return self._gpus[name]

    def framework(self, name: str) -> FrameworkProfile:
        """A framework profile by name."""
        if name in self.profiles:
            return self.profiles[name]
        if name not in self._frameworks:
            path = find(SpecKind.FRAMEWORKS, name)
            self._frameworks[name] = read_spec(FrameworkProfile, path)
        return self._frameworks[name]

    def model(self, name: str) -> ModelSpec | None:
        """A built-in model by its name, alias or ORG/NAME in any spelling, if there is one."""
        return self._models.get(spelled(name))

    @cached_property
    def _models(self) -> dict[str, ModelSpec]:
        models: dict[str, ModelSpec] = {}
        for name in names(SpecKind.MODELS):
            model = load_model(name)
            for word in (name, model.name, *model.aliases):
                models.setdefault(spelled(word), model)
        return models


def replacing(path: Path) -> dict[str, FrameworkProfile]:
    """The profile in a file, under the name of the shipped profile whose place it takes.

    Raises
    ------
    SpecError
        The file has faults, or no shipped profile has its name.
    """
    profile = read_spec(FrameworkProfile, path)
    for stem in names(SpecKind.FRAMEWORKS):
        if read_spec(FrameworkProfile, find(SpecKind.FRAMEWORKS, stem)).name == profile.name:
            return {stem: profile}
    raise SpecError(f"{path}: no shipped profile is named {profile.name!r}; keep its name.")


def spelled(name: str) -> str:
    """A name in lower case, its parts joined by dashes, without owner and brackets."""
    bare = re.sub(r"\(.*?\)", "", name.lower()).rpartition("/")[2]
    return re.sub(r"[\s_-]+", "-", bare).strip("-")

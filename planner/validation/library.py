"""The specs that runs refer to, each read once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

from planner.errors import SpecError
from planner.specs.catalogue import Catalogue
from planner.specs.engine import EngineProfile
from planner.specs.framework import FrameworkProfile
from planner.specs.gpu import GpuSpec
from planner.specs.load import read_toml
from planner.specs.model import ModelSpec
from planner.specs.paths import SpecKind
from planner.specs.profile import kind_of_profile
from planner.validation.columns import is_path

_VARIANT = re.compile(
    r"[-.](?:base|pt|instruct|chat|it|hf|sft|dpo|thinking|reasoning|preview|q?lora"
    r"|bf16|fp16|fp8|nvfp4|mxfp4|fp4(?:-v\d)?|int8|int4|w\d+a\d+|quantized|dynamic|block"
    r"|[48]-?bit|bnb|awq|gptq.*|gguf|kv|\d{4})$"
)


@dataclass(kw_only=True)
class Library:
    """Caches of specs by name; ``profiles`` and ``engines`` replace those of their names."""

    catalogue: Catalogue = field(default_factory=Catalogue)
    profiles: Mapping[str, FrameworkProfile] = field(default_factory=dict)
    engines: Mapping[str, EngineProfile] = field(default_factory=dict)
    _gpus: dict[str, GpuSpec | None] = field(default_factory=dict, init=False)
    _frameworks: dict[str, FrameworkProfile] = field(default_factory=dict, init=False)
    _engines: dict[str, EngineProfile] = field(default_factory=dict, init=False)

    def gpu(self, name: str) -> GpuSpec | None:
        """A GPU by name or alias, or None where the catalogue lacks it; no file is opened."""
        if name not in self._gpus:
            if is_path(name):
                return None
            try:
                self.catalogue.find(SpecKind.GPUS, name)
            except SpecError:
                self._gpus[name] = None
            else:
                self._gpus[name] = self.catalogue.load_gpu(name).spec
        return self._gpus[name]

    def framework(self, name: str) -> FrameworkProfile:
        """A framework profile by name."""
        if name in self.profiles:
            return self.profiles[name]
        if name not in self._frameworks:
            self._frameworks[name] = self.catalogue.load_framework(name).spec
        return self._frameworks[name]

    def engine(self, name: str) -> EngineProfile:
        """An engine profile by name."""
        if name in self.engines:
            return self.engines[name]
        if name not in self._engines:
            self._engines[name] = self.catalogue.load_engine(name).spec
        return self._engines[name]

    def model(self, name: str) -> ModelSpec | None:
        """A built-in model by its name, alias or ORG/NAME in any spelling, if there is one."""
        return self._models.get(spelled(name))

    @cached_property
    def _models(self) -> dict[str, ModelSpec]:
        models: dict[str, ModelSpec] = {}
        for name in self.catalogue.names(SpecKind.MODELS):
            model = self.catalogue.load_model(name)
            for word in (name, model.name, *model.aliases):
                models.setdefault(spelled(word), model)
        return {**_shortened(models), **models}


def _shortened(models: Mapping[str, ModelSpec]) -> dict[str, ModelSpec]:
    """The names without release or format that only one model has."""
    found: dict[str, list[ModelSpec]] = {}
    for word, model in models.items():
        while word := without_variant(word):
            known = found.setdefault(word, [])
            if not any(model is other for other in known):
                known.append(model)
    return {word: known[0] for word, known in found.items() if len(known) == 1}


def replacing(path: Path, catalogue: Catalogue) -> Library:
    """A library in which the profile in a file takes the place of the shipped one of its name.

    Raises
    ------
    SpecError
        The file has faults, or no shipped profile has its name.
    """
    if kind_of_profile(path, catalogue.folder) is SpecKind.ENGINES:
        engine = catalogue.load_engine(str(path)).spec
        stem = _stem(engine.name, SpecKind.ENGINES, path, catalogue)
        return Library(catalogue=catalogue, engines={stem: engine})
    profile = catalogue.load_framework(str(path)).spec
    stem = _stem(profile.name, SpecKind.FRAMEWORKS, path, catalogue)
    return Library(catalogue=catalogue, profiles={stem: profile})


def _stem(name: str, kind: SpecKind, path: Path, catalogue: Catalogue) -> str:
    """The shipped profile of a name."""
    for stem in catalogue.names(kind):
        if read_toml(catalogue.find(kind, stem)).get("name") == name:
            return stem
    raise SpecError(f"{path}: no shipped profile is named {name!r}; keep its name.")


def without_variant(name: str) -> str:
    """A spelled name without the last word of its release or its format; empty if it has none."""
    shorter = _VARIANT.sub("", name)
    return shorter if shorter != name else ""


@cache
def spelled(name: str) -> str:
    """A name in lower case, its parts joined by dashes, without owner and brackets."""
    bare = re.sub(r"\(.*?\)", "", name.lower()).rpartition("/")[2]
    return re.sub(r"[\s_-]+", "-", bare).strip("-")

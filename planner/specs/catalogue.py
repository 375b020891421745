"""Specs by name: in the user's folder, in the working directory, and shipped.

Parameters
----------
name : name, alias or path of the spec
kind : kind of spec, such as ``gpus``
folder : folder of own spec files, searched first; None: working directory and shipped files
model : model
gpu_name : name of the GPU
user_folder : CSV file of the user's prices, whose offers replace those of the price lists
gpu : GPU
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from planner.base.enums import LinkKind
from planner.base.records import record
from planner.errors import SpecError
from planner.specs.engine import EngineProfile
from planner.specs.file_cache import cache_between_runs
from planner.specs.framework import FrameworkProfile
from planner.specs.gpu import ClusterSpec, CollectiveEfficiency, GpuSpec, collectives
from planner.specs.hardware import (
    GemmTable,
    LoadedSpec,
    default_cluster,
    load_cluster,
    load_cluster_with_provenance,
    load_gemm_table,
    load_gpu,
    load_gpu_with_provenance,
)
from planner.specs.model import ModelSpec
from planner.specs.operating_terms import ReliabilitySpec, load_reliability
from planner.specs.power import PowerProfile, Region, find_region, load_power
from planner.specs.price import Price, offers_of, price_of
from planner.specs.quantization import checkpoint_of, format_of
from planner.specs.search_space import SearchSpace
from planner.specs.software_profile import load_engine, load_framework
from planner.specs.spec_files import check_spec, digest, read_spec, read_toml
from planner.specs.spec_paths import (
    SpecKind,
    aliased,
    close_names,
    find,
    names,
    price_files,
    spec_folders,
)

_SIXTEEN_BIT = "w16a16"


def load_model(name: str, folder: Path | None = None) -> ModelSpec:
    """Load a model by name, alias, ORG/NAME of Hugging Face, or path.

    By the name of a checkpoint, a built-in model gets the quantization in this name. The same holds
    for the name of a copy of it (``unsloth/Llama-3.3-70B-Instruct-bnb-4bit``) without a
    ``config.json`` in the local cache, see `copied_from`.

    Raises SpecError if the model is unknown or its file has errors; MissingDependencyError if it
    has to be downloaded, and huggingface-hub is not installed.
    """
    if name.endswith(".toml"):
        return _from_toml(find(SpecKind.MODELS, name, folder))
    if name.endswith(".json") or "/" in name or os.path.isfile(os.path.join(name, "config.json")):
        return _of_hugging_face(name, folder)
    try:
        path = find(SpecKind.MODELS, name, folder)
    except SpecError:
        if (base := copied_from(name, folder)) is None:
            _refuse_unmodelled(name)
            raise
        return _as_published(_from_toml(find(SpecKind.MODELS, base, folder)), name)
    return _from_toml(path)


def _refuse_unmodelled(name: str) -> None:
    """Raise SpecError with the reason if a model of this name is known not to be modelled."""
    from planner.specs.hugging_face import unmodelled_model

    if reason := unmodelled_model(name):
        raise SpecError(reason)


def copied_from(name: str, folder: Path | None = None) -> str | None:
    """Return the built-in model that a renamed or quantized copy is of, by its ``name``.

    None if a model has this name, if its ``config.json`` is in the local cache, or if the name
    without owner and format is no model of the catalogue.

    Parameters
    ----------
    name : ORG/NAME of a repository
    """
    is_path = name.endswith((".toml", ".json")) or os.path.isdir(name)
    has_spec = "/" not in name and _has_spec(name, folder)
    if is_path or name.count("/") > 1 or has_spec or aliased(SpecKind.MODELS, name, folder):
        return None
    if "/" in name:
        from planner.specs.hugging_face import cached_config, is_repository

        repository = name.partition(":")[0]  # without the tag of a GGUF file
        if not is_repository(repository) or cached_config(repository):
            return None
    base = checkpoint_of(name, folder).model
    return None if base == name else base


def _has_spec(name: str, folder: Path | None) -> bool:
    """Return whether the catalogue has a model spec of this name."""
    try:
        find(SpecKind.MODELS, name, folder)
    except SpecError:
        return False
    return True


def _of_hugging_face(name: str, folder: Path | None) -> ModelSpec:
    """Load a model from a config.json, a folder, a repository name or the catalogue."""
    # Twenty modules that a model of the catalogue does not need.
    from planner.specs.hugging_face import find_config, is_repository, read_config

    if name.endswith(".json"):
        return read_config(Path(name))
    if os.path.isfile(os.path.join(name, "config.json")):
        return read_config(Path(name) / "config.json")
    if is_repository(name.partition(":")[0]):
        base = copied_from(name, folder)
        path = aliased(SpecKind.MODELS, base or name, folder)
        if base and path is None:
            path = find(SpecKind.MODELS, base, folder)
        if path is not None:
            return _as_published(_from_toml(path), name)
        try:
            config = find_config(name)
        except SpecError as error:
            _refuse_unmodelled(name)
            raise SpecError(f"{error}{close_names(SpecKind.MODELS, name, folder)}") from error
        return read_config(config, name)
    return _from_toml(find(SpecKind.MODELS, name, folder))


def _as_published(model: ModelSpec, repository: str) -> ModelSpec:
    """The model with the quantization of a checkpoint: a known one's, else that in its name."""
    by_repository = {stored.repository.lower(): stored.quantization for stored in model.checkpoints}
    word = by_repository.get(repository.lower()) or format_of(repository)
    is_block_scaled = word == "fp8" and model.quantization == "fp8_block"
    return model if word is None or is_block_scaled else in_format(model, word)


def in_format(model: ModelSpec, word: str) -> ModelSpec:
    """Return the model with another weight type; experts only if only they are quantized.

    Parameters
    ----------
    word : type of the weights, such as ``fp8``
    """
    if word == _SIXTEEN_BIT:
        return replace(model, quantization=None, expert_quantization=None)
    experts_only = model.quantization is None and model.expert_quantization is not None
    dense = None if experts_only else word
    return replace(
        model, quantization=dense, expert_quantization=word if model.num_experts else None
    )


def stored_types(model: ModelSpec) -> tuple[str, str]:
    """Return the types of a model's dense matrices and of its experts, as glossary words."""
    dense = model.quantization or _SIXTEEN_BIT
    return dense, model.expert_quantization or dense


@cache_between_runs
def _from_toml(path: Path) -> ModelSpec:
    return read_spec(ModelSpec, path)


__all__ = [
    "Catalogue",
    "LoadedSpec",
    "default_cluster",
    "find",
    "load_cluster",
    "load_cluster_with_provenance",
    "load_gpu",
    "load_gpu_with_provenance",
    "names",
]


@record()
class Catalogue:
    """Lookup of specs: in ``folder``, then in the working directory, then shipped.

    Every method raises `SpecError` if the spec is unknown or its file has errors, with one line per
    error; also if the ``folder`` does not exist.

    Parameters
    ----------
    folder : folder of own spec files; None: the working directory, then shipped files
    """

    folder: Path | None = None

    def __post_init__(self) -> None:
        if self.folder is not None:
            object.__setattr__(self, "folder", Path(self.folder))
            if not os.path.isdir(self.folder):
                raise SpecError(f"{self.folder}: there is no such folder.")

    def folders(self, kind: SpecKind | str) -> list[Path]:
        """Return the folders of specs of ``kind`` in lookup order."""
        return spec_folders(kind, self.folder)

    def price_files(self) -> list[Path]:
        """The price lists in the order of lookup."""
        return price_files(self.folder)

    def names(self, kind: SpecKind | str) -> list[str]:
        """Return the sorted names of all specs of a kind."""
        return names(kind, self.folder)

    def gpus_on_hand(self) -> list[str]:
        """All GPUs without those that are announced and not yet measured, sorted."""
        return [name for name in self.names("gpus") if not self.load_gpu(name).spec.announced]

    def find(self, kind: SpecKind | str, name: str) -> Path:
        """Return the file of a spec, by name, alias or path."""
        return find(kind, name, self.folder)

    def load_model(self, name: str) -> ModelSpec:
        """Load a model by name, alias, ORG/NAME of Hugging Face, or path; see `load_model`."""
        return load_model(name, self.folder)

    def copied_from(self, name: str) -> str | None:
        """Return the built-in model of a renamed or quantized copy; see `copied_from`.

        Parameters
        ----------
        name : ORG/NAME of a repository
        """
        return copied_from(name, self.folder)

    def load_gpu(self, name: str) -> LoadedSpec[GpuSpec]:
        """Load a GPU completed with its class's defaults, with the source of each number."""
        return load_gpu_with_provenance(name, self.folder)

    def load_cluster(self, name: str) -> LoadedSpec[ClusterSpec]:
        """Load a cluster, with the source of each number."""
        return load_cluster_with_provenance(name, self.folder)

    def load_framework(self, name: str) -> LoadedSpec[FrameworkProfile]:
        """Load a framework profile, with the source of each number."""
        return load_framework(name, self.folder)

    def load_engine(self, name: str) -> LoadedSpec[EngineProfile]:
        """Load an engine profile, with the source of each number."""
        return load_engine(name, self.folder)

    def load_profile(
        self, kind: str, name: str
    ) -> LoadedSpec[FrameworkProfile] | LoadedSpec[EngineProfile]:
        """Load a ``framework`` or ``engine`` profile, with the source of each number.

        Parameters
        ----------
        kind : ``framework`` or ``engine``
        """
        return self.load_framework(name) if kind == "framework" else self.load_engine(name)

    def load_reliability(self, name: str) -> LoadedSpec[ReliabilitySpec]:
        """Load failure rates and recovery times, with the source of each number."""
        return load_reliability(name, self.folder)

    def load_space(self, name: str) -> LoadedSpec[SearchSpace]:
        """Load a search space."""
        return _load_space(name, self.folder)

    def price(
        self,
        gpu_name: str,
        contract: str | None = None,
        provider: str | None = None,
        user_folder: Path | None = None,
    ) -> Price | None:
        """Return the price of one GPU [USD/s]; see `price_of`.

        Parameters
        ----------
        contract : contract, such as ``spot``; None: the usual contract of the GPU
        provider : seller; None: any
        """
        return price_of(gpu_name, contract, provider, user_folder, self.folder)

    def offers(self, gpu_name: str, user_folder: Path | None = None) -> list[Price]:
        """Return all offers of a GPU in lookup order of their lists."""
        return offers_of(gpu_name, user_folder, self.folder)

    def load_power(self) -> LoadedSpec[PowerProfile]:
        """Power model of nodes and building, with the source of each number."""
        return load_power(self.folder)

    def find_region(self, name: str) -> Region:
        """Return a grid or cloud region by code or name; raise SearchSpaceError if unknown.

        Parameters
        ----------
        name : code or name of the region
        """
        return find_region(name, self.folder)

    def collectives(self, gpu: GpuSpec, kind: LinkKind) -> Mapping[str, CollectiveEfficiency]:
        """Return the efficiency of collectives on ``kind``: of the GPU, or defaults.

        Parameters
        ----------
        kind : kind of the fabric
        """
        return collectives(gpu, kind, self.folder)

    def gemm_table(self, gpu: GpuSpec) -> GemmTable | None:
        """Return the GEMM table measured on a GPU; None if there is none."""
        name = gpu.efficiency.gemm_table
        return load_gemm_table(name, gpu.name, self.folder) if name else None


@cache_between_runs
def _load_space(name: str, folder: Path | None) -> LoadedSpec[SearchSpace]:
    path = find(SpecKind.SPACES, name, folder)
    space = check_spec(SearchSpace, read_toml(path), where=str(path))
    return LoadedSpec(spec=space, path=path, provenance={}, digest=digest(path))

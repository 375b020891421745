"""Check spec files: every fault of every file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from planner.errors import PlannerError, SpecError
from planner.report.spec_lists import KINDS, spec_kind
from planner.specs.api_price import read_api_prices
from planner.specs.catalogue import Catalogue
from planner.specs.load import read_spec
from planner.specs.ownership import OWNERSHIP, unknown_owned
from planner.specs.paths import API_PRICES, SpecKind, api_price_files, beside_specs
from planner.specs.power import POWER, read_power
from planner.specs.price import CURRENCIES, read_currencies, unknown_gpus
from planner.specs.regions import REGIONS, read_regions
from planner.specs.search_space import SearchSpace
from planner.specs.workload import TrainingWorkload
from planner.workloads.serving_space import serving_mesh
from planner.workloads.training import mesh_of

_FOLDERS = {
    "model_specs": SpecKind.MODELS,
    "framework_profiles": SpecKind.FRAMEWORKS,
    "engine_profiles": SpecKind.ENGINES,
    "search_spaces": SpecKind.SPACES,
}
_READERS: Mapping[str, Callable[[Path], object]] = {
    API_PRICES: read_api_prices,
    CURRENCIES: read_currencies,
    POWER: read_power,
    REGIONS: read_regions,
}
_EXAMPLE_MODEL, _EXAMPLE_GPUS = "llama-7b", 8


def files_to_check(
    targets: Sequence[str], catalogue: Catalogue
) -> list[tuple[SpecKind | None, Path]]:
    """The files that words of the command line mean, each with its kind; None: a table beside them.

    Raises
    ------
    SpecError
        A word is neither a kind nor a file, or nothing says of which kind a file is.
    """
    kind = None
    paths = list(targets)
    if paths and not os.path.isfile(paths[0]) and "/" not in paths[0] and "." not in paths[0]:
        kind = spec_kind(paths.pop(0))
    if paths:
        return [_given(kind, Path(path)) for path in paths]
    return [*_of_kinds((kind,) if kind else KINDS, catalogue)]


def check_files(files: Sequence[tuple[SpecKind | None, Path]], catalogue: Catalogue) -> list[str]:
    """One line per fault, in the order of the files."""
    faults: list[str] = []
    for kind, path in files:
        try:
            _check(kind, path, catalogue)
        except PlannerError as error:
            faults += [_located(path, line) for line in str(error).splitlines()]
    return faults


def _of_kinds(
    kinds: Sequence[SpecKind], catalogue: Catalogue
) -> Iterator[tuple[SpecKind | None, Path]]:
    for kind in kinds:
        for folder in catalogue.folders(kind):
            yield from ((kind, path) for path in sorted(folder.glob("*.toml")))
        if kind is SpecKind.GPUS:
            yield from ((None, path) for path in catalogue.price_files())
            for name in (CURRENCIES, OWNERSHIP, POWER, REGIONS):
                yield from ((None, path) for path in beside_specs(name, catalogue.folder))
        if kind is SpecKind.MODELS:
            yield from ((None, path) for path in api_price_files(catalogue.folder))


def _given(kind: SpecKind | None, path: Path) -> tuple[SpecKind | None, Path]:
    if path.suffix == ".csv" or (kind is None and path.name == POWER):
        return None, path
    if kind is None and path.suffix == ".json":
        kind = SpecKind.MODELS
    if kind is None:
        folder = (Path(os.path.realpath(path)) if os.path.exists(path) else path).parent.name
        kind = _FOLDERS.get(folder) or next((k for k in KINDS if k.value == folder), None)
    if kind is None:
        raise SpecError(
            f"{path}: say of which kind it is: `planner specs validate KIND {path}` "
            f"with {', '.join(KINDS)}."
        )
    return kind, path


def _check(kind: SpecKind | None, path: Path, catalogue: Catalogue) -> None:
    name = str(path.absolute())
    if kind is None:
        _check_table(path, catalogue)
    elif kind is SpecKind.GPUS:
        catalogue.load_gpu(name)
    elif kind is SpecKind.CLUSTERS:
        catalogue.load_gpu(catalogue.load_cluster(name).spec.gpu)
    elif kind is SpecKind.MODELS:
        catalogue.load_model(name)
    elif kind is SpecKind.FRAMEWORKS:
        catalogue.load_framework(name)
    elif kind is SpecKind.ENGINES:
        catalogue.load_engine(name)
    elif kind is SpecKind.RELIABILITY:
        catalogue.load_reliability(name)
    else:
        _check_space(path, catalogue)


def _check_table(path: Path, catalogue: Catalogue) -> None:
    """A table beside the folders of specs, by its name; any other is a price list."""
    if path.name in _READERS:
        _READERS[path.name](path)
    elif path.name == OWNERSHIP:
        if faults := unknown_owned(path, catalogue.folder):
            raise SpecError("\n".join(faults))
    elif faults := unknown_gpus(path, catalogue.folder):
        raise SpecError("\n".join(faults))


def _check_space(path: Path, catalogue: Catalogue) -> None:
    """Expand the space for some model: its parameters and values must be known ones."""
    space = read_spec(SearchSpace, path)
    if space.engine:
        _check_serving_space(space, catalogue)
        return
    profile = catalogue.load_framework(space.framework).spec
    workload = TrainingWorkload(sequence_length=2048, global_batch_size=1024, total_tokens=1e9)
    mesh_of(
        space,
        {},
        num_gpus=[_EXAMPLE_GPUS],
        model=catalogue.load_model(_EXAMPLE_MODEL),
        framework=profile,
        workload=workload,
    )


def _check_serving_space(space: SearchSpace, catalogue: Catalogue) -> None:
    engine = catalogue.load_engine(space.engine).spec
    serving_mesh(
        space, {}, counts=[_EXAMPLE_GPUS], model=catalogue.load_model(_EXAMPLE_MODEL), engine=engine
    )


def _located(path: Path, fault: str) -> str:
    return (
        fault.replace(str(path.absolute()), str(path)) if path.name in fault else f"{path}: {fault}"
    )

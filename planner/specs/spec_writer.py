"""Text of spec files of models and GPUs; reading it gives the same spec.

Such a GPU has only the figures of a datasheet.

Parameters
----------
folder : folder of own spec files; None: the working directory
replaces : whether an existing file of this name is overwritten
model : model
name : name of the new file
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from planner.base.enums import LinkKind
from planner.base.read_files import parse_toml
from planner.base.units import GIB, GIGA, TERA, parse_quantity
from planner.errors import SpecError
from planner.specs.catalogue import load_model
from planner.specs.gpu import GpuSpec, with_defaults
from planner.specs.model import ModelSpec
from planner.specs.spec_files import check_spec, read_spec
from planner.specs.spec_paths import SpecKind

USER_SPECS_FOLDER = Path("hardware_specs")
"""Default folder of the user's specs."""


def model_text(model: ModelSpec) -> str:
    """Return the TOML of a model: all fields that differ from their defaults."""
    return "\n".join(_lines(model, "")).strip() + "\n"


def file_name(name: str) -> str:
    """Return the file name of a model: lower-case letters, digits and dashes.

    Parameters
    ----------
    name : name of the model

    >>> file_name("moonshotai/Kimi-Linear-48B-A3B-Instruct")
    'kimi-linear-48b-a3b-instruct'
    """
    return re.sub(r"[^a-z0-9.]+", "-", name.rpartition("/")[2].lower()).strip("-.")


def add_model(
    kind: SpecKind, source: str, name: str | None, folder: Path | None, replaces: bool
) -> tuple[Path, ModelSpec]:
    """Write the model of ``source`` to a spec file; return the file and the model.

    Raises SpecError if the source is no model or unreadable, or the file exists.

    Parameters
    ----------
    kind : ``models``
    source : path of a ``config.json``, or ORG/NAME
    name : name of the new file; None: that of the model
    """
    if kind is not SpecKind.MODELS:
        raise SpecError(
            f"Only models and GPUs can be added, not {kind}: copy the closest file of them."
        )
    existing_folder = folder if folder and os.path.isdir(folder) else None
    model = load_model(source, existing_folder)
    is_repository = source.count("/") == 1 and not os.path.exists(source)
    aliases = (source,) if is_repository else ()
    target_name = name or (source if is_repository else model.name)
    model = replace(model, name=name or model.name, aliases=aliases)
    return keep_model(model, target_name, folder, replaces), model


def keep_model(model: ModelSpec, name: str, folder: Path | None, replaces: bool = False) -> Path:
    """Write a model to the user's spec folder; return the path.

    Raises SpecError if the name is no valid file name, the file exists and is not to be replaced,
    or it cannot be written.
    """
    path = keep_text(model_text(model), SpecKind.MODELS, name, folder, replaces)
    read_spec(ModelSpec, path)
    return path


def keep_text(
    text: str, kind: SpecKind, name: str, folder: Path | None, replaces: bool = False
) -> Path:
    """Write the text of a spec to the user's spec folder; return the path.

    Raises SpecError as `keep_model` does.

    Parameters
    ----------
    text : text of the file
    kind : kind of spec, such as ``gpus``
    """
    stem = file_name(name)
    if not stem:
        raise SpecError(f"{name!r} has no letters or digits for the name of a file: give --name.")
    path = (folder or USER_SPECS_FOLDER) / kind / f"{stem}.toml"
    if os.path.exists(path) and not replaces:
        raise SpecError(f"{path}: there is such a file. Give --name NAME, or --replace.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SpecError(f"{path}: cannot be written: {error.strerror or error}.") from error
    return path


def _lines(spec: Any, prefix: str) -> Iterator[str]:
    """Yield the TOML lines of a spec: fields that differ from their defaults, then its tables."""
    set_values = []
    for field in fields(spec):
        value = getattr(spec, field.name)
        default = field.default if field.default_factory is MISSING else field.default_factory()
        if value is not None and value != default:
            set_values.append((field.name, value))
    tables = [(name, value) for name, value in set_values if _holds_tables(value)]
    for name, value in set_values:
        if not _holds_tables(value):
            toml_value = list(value) if isinstance(value, tuple) else value
            yield f"{name} = {json.dumps(toml_value, ensure_ascii=True)}"  # as TOML has it
    for name, value in tables:
        path = f"{prefix}{name}"
        several = isinstance(value, tuple)
        for each in value if several else (value,):
            yield ""
            yield f"[[{path}]]" if several else f"[{path}]"
            yield from _lines(each, f"{path}.")


def _holds_tables(value: Any) -> bool:
    return is_dataclass(value) or (
        isinstance(value, tuple) and bool(value) and is_dataclass(value[0])
    )


FIGURES: Mapping[str, tuple[str, str, float]] = {
    "memory": ("byte", "GiB", GIB),
    "bandwidth": ("byte/s", "GB/s", GIGA),
    "peak": ("flop/s", "TFLOP/s", TERA),
    "link": ("byte/s", "GB/s", GIGA),
    "power": ("watt", "W", 1.0),
}
"""Required figures of a datasheet: dimension, unit of a bare number, and that unit in SI."""

_FASTEST_BUS = 128
"""Bandwidth of 16 lanes of PCIe 6.0 in one direction [GB/s]; a faster link is another fabric."""
_FABRICS = {
    "NVIDIA": (LinkKind.NVLINK, "nvlink"),
    "AMD": (LinkKind.XGMI, "xgmi"),
    "Apple": (LinkKind.NETWORK, "network"),
}
_VENDORS = ("NVIDIA", "AMD", "Intel", "Apple", "Google", "AWS", "Huawei")


@dataclass(frozen=True, slots=True, kw_only=True)
class Datasheet:
    """Figures of a GPU as texts such as ``96GiB``; a bare number has the unit of `FIGURES`.

    Parameters
    ----------
    name : name of the GPU
    memory : memory
    bandwidth : memory bandwidth
    peak : dense bf16 peak
    link : bandwidth per GPU and direction of the fabric
    power : thermal design power
    fp8_peak : dense fp8 peak; None: not supported
    vendor : maker
    architecture : generation, as engine profiles name it
    source : publication
    """

    name: str
    memory: str | None = None
    bandwidth: str | None = None
    peak: str | None = None
    link: str | None = None
    power: str | None = None
    fp8_peak: str | None = None
    vendor: str = "NVIDIA"
    architecture: str = ""
    source: str = "a datasheet"

    def text(self) -> str:
        """Return the TOML of the GPU; its efficiencies count as assumed.

        Raises SpecError if a figure is missing or is no such quantity.
        """
        missing = [f"--{name}" for name in FIGURES if getattr(self, name) is None]
        if missing:
            raise SpecError(
                f"A GPU needs {len(FIGURES)} figures of its datasheet: {', '.join(missing)} "
                f"{'is' if len(missing) == 1 else 'are'} missing."
            )
        vendors = {name.lower(): name for name in _VENDORS}
        vendor = vendors.get(self.vendor.lower(), self.vendor)
        link = self._number("link")
        kind, fabric = _FABRICS.get(vendor, (LinkKind.ROCE, "other_fabric"))
        if link <= _FASTEST_BUS and kind is not LinkKind.NETWORK:
            kind, fabric = LinkKind.PCIE, "pcie"
        kernels = "apple" if vendor == "Apple" else "other"
        stem = file_name(self.name)
        peak = self._figure("peak")
        lines = [
            f"name = {json.dumps(stem)}",
            f"vendor = {json.dumps(vendor)}",
            f"aliases = {json.dumps([] if self.name == stem else [self.name])}",
            *([f"architecture = {json.dumps(self.architecture)}"] if self.architecture else []),
            "unmeasured = true",
            f"default_efficiency = {json.dumps([kernels, fabric])}",
            f"memory_capacity = {self._figure('memory')}",
            f"memory_bandwidth = {self._figure('bandwidth')}",
            f"thermal_design_power = {self._figure('power')}",
            "",
            "[peak_flops]",
            f"fp16 = {peak}",
            f"bf16 = {peak}",
            *([f"fp8 = {self._figure('fp8_peak')}"] if self.fp8_peak else []),
            "",
            "[scale_up]",
            f"kind = {json.dumps(kind)}",
            f"bandwidth = {self._figure('link')}",
            f"domain_size = {1 if kind in (LinkKind.PCIE, LinkKind.NETWORK) else 8}",
            "",
            "[sources]",
            f"datasheet = {json.dumps(self.source)}",
        ]
        return "\n".join(lines) + "\n"

    def _figure(self, name: str) -> str:
        unit = FIGURES[name.removeprefix("fp8_")][1]
        number = f"{self._number(name):.6g}"
        return f'{{ value = {number}, unit = "{unit}", source = "datasheet" }}'

    def _number(self, name: str) -> float:
        """Return a datasheet option such as "989 TFLOPS" as a number in the file's unit."""
        dimension, unit, scale = FIGURES[name.removeprefix("fp8_")]
        text = str(getattr(self, name))
        try:
            return parse_quantity(text.replace("FLOPS", "FLOP/s"), dimension, unit) / scale
        except ValueError as error:
            option = f"--{name.replace('_', '-')}"
            raise SpecError(f"{option} {text}: {error}.") from error


def add_gpu(sheet: Datasheet, folder: Path | None, replaces: bool) -> Path:
    """Write a GPU to the user's spec folder; return the path.

    Raises SpecError if a figure is missing or impossible, or the file exists.

    Parameters
    ----------
    sheet : figures of the GPU
    """
    text = sheet.text()
    table, _ = with_defaults(parse_toml(text, sheet.name), sheet.name)
    check_spec(GpuSpec, table, sheet.name)
    return keep_text(text, SpecKind.GPUS, sheet.name, folder, replaces)

"""A GPU of which nobody has more than a datasheet, as the text of its spec file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from planner.base.enums import LinkKind
from planner.base.reading import toml_of
from planner.base.units import GIB, GIGA, TERA, parse_quantity
from planner.errors import SpecError
from planner.specs.efficiency import with_defaults
from planner.specs.gpu import GpuSpec
from planner.specs.load import check_spec
from planner.specs.paths import SpecKind
from planner.specs.written import file_name, keep_text

FIGURES: Mapping[str, tuple[str, str, float]] = {
    "memory": ("byte", "GiB", GIB),
    "bandwidth": ("byte/s", "GB/s", GIGA),
    "peak": ("flop/s", "TFLOP/s", TERA),
    "link": ("byte/s", "GB/s", GIGA),
    "power": ("watt", "W", 1.0),
}
"""What a datasheet must tell: dimension, the unit of a bare number, and that unit in SI."""

_FASTEST_BUS = 128
"""GB/s: what 16 lanes of PCIe 6.0 move in one direction; more is a fabric of its own."""
_FABRICS = {
    "NVIDIA": (LinkKind.NVLINK, "nvlink"),
    "AMD": (LinkKind.XGMI, "xgmi"),
    "Apple": (LinkKind.NETWORK, "network"),
}
_VENDORS = ("NVIDIA", "AMD", "Intel", "Apple", "Google", "AWS", "Huawei")


@dataclass(frozen=True, slots=True, kw_only=True)
class Datasheet:
    """What is known of a GPU: texts such as ``96GiB``; a bare number has the unit of `FIGURES`.

    ``peak`` is dense, in bf16; ``link`` per GPU and one direction. ``fp8_peak`` is not given
    where the GPU lacks it.
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
        """The TOML of the GPU: its kernels are assumed, so that its intervals are the widest.

        Raises
        ------
        SpecError
            A figure is missing or is no such quantity.
        """
        missing = [f"--{name}" for name in FIGURES if getattr(self, name) is None]
        if missing:
            raise SpecError(
                f"A GPU takes {len(FIGURES)} figures of its datasheet: {', '.join(missing)} "
                f"{'is' if len(missing) == 1 else 'are'} missing."
            )
        vendors = {known.lower(): known for known in _VENDORS}
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
        dimension, unit, scale = FIGURES[name.removeprefix("fp8_")]
        given = str(getattr(self, name))
        try:
            return parse_quantity(given.replace("FLOPS", "FLOP/s"), dimension, unit) / scale
        except ValueError as error:
            option = f"--{name.replace('_', '-')}"
            raise SpecError(f"{option} {given}: {error}.") from error


def add_gpu(sheet: Datasheet, folder: Path | None, replaces: bool) -> Path:
    """Keep a GPU in a folder of own specs, and return its file.

    Raises
    ------
    SpecError
        A figure is missing or impossible, or there is a file of its name.
    """
    text = sheet.text()
    table, _ = with_defaults(toml_of(text, sheet.name), sheet.name)
    check_spec(GpuSpec, table, sheet.name)
    return keep_text(text, SpecKind.GPUS, sheet.name, folder, replaces)

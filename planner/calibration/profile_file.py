"""A framework profile with fitted numbers, as a TOML file."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.errors import MissingDependencyError

if TYPE_CHECKING:
    from planner.calibration.fit import Fit

SOURCE = "calibrated"
UNITS = {"layer_launch_time": ("ms", 1e3), "micro_batch_overhead": ("ms", 1e3)}
UNITS |= dict.fromkeys(("step_overhead", "request_overhead"), ("ms", 1e3))
UNITS |= dict.fromkeys(
    ("decode_launch_time", "prefill_launch_time", "sequence_overhead"), ("us", 1e6)
)
_DIGITS = 4


def require_fitting() -> None:
    """Check that what calibration needs is installed.

    Raises
    ------
    MissingDependencyError
        scipy or tomlkit is missing.
    """
    if find_spec("scipy") is None or find_spec("tomlkit") is None:
        raise MissingDependencyError(
            "Calibration needs scipy and tomlkit: pip install 'planner[calibration]'."
        )


def profile_text(shipped: Path, fit: Fit, origin: str) -> str:
    """The text of ``shipped`` with the fitted numbers, which name ``origin`` as their source."""
    import tomlkit

    document: Any = tomlkit.parse(shipped.read_text(encoding="utf-8"))
    document["sources"][SOURCE] = origin
    for parameter, value in fit.values.items():
        unit, scale = UNITS.get(parameter.name, ("1", 1.0))
        number = document[parameter.owner][parameter.name]
        number["value"] = float(f"{value * scale:.{_DIGITS}g}")
        number["unit"] = unit
        number["source"] = SOURCE
    return str(document.as_string())

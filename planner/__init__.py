"""Plan the training and the serving of language models over every configuration there is."""

from __future__ import annotations

from planner.base.version import __version__

TYPE_CHECKING = False  # without importing typing: a command listens to signals earlier
if TYPE_CHECKING:
    from planner.api import (
        check,
        compare,
        estimate,
        explain,
        max_batch,
        max_batches,
        max_length,
        operators,
        predictor,
        search,
        size,
        size_pools,
        size_services,
        sweep,
    )
    from planner.api_files import read_launch, validate_log, validate_runs, write_launch
    from planner.question.request import Request

__all__ = [
    "Request",
    "__version__",
    "check",
    "compare",
    "estimate",
    "explain",
    "max_batch",
    "max_batches",
    "max_length",
    "operators",
    "predictor",
    "read_launch",
    "search",
    "size",
    "size_pools",
    "size_services",
    "sweep",
    "validate_log",
    "validate_runs",
    "write_launch",
]

_OF_FILES = ("read_launch", "validate_log", "validate_runs", "write_launch")


def __getattr__(name: str) -> object:
    if name in __all__ and name not in ("Request", "__version__"):
        from planner import api, api_files

        return getattr(api_files if name in _OF_FILES else api, name)
    if name == "Request":
        from planner.question.request import Request

        return Request
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)

"""A JSON document with how it came to be."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from planner.base.files import written_whole
from planner.version import __version__


def command_manifest(command: Sequence[str]) -> dict[str, Any]:
    """What a manifest says where no one plan is asked for."""
    return {
        "version": __version__,
        "command": shlex.join(["planner", *command]),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def write_document(path: Path | None, manifest: Mapping[str, Any], **parts: Any) -> None:
    """One JSON object: a manifest, and its parts; nothing where there is no path.

    Raises
    ------
    OutputError
        It cannot be written.
    """
    if path is None:
        return
    with written_whole(path) as file:
        json.dump({"manifest": manifest, **parts}, file, indent=1, default=str)
        file.write("\n")

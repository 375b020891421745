"""A JSON document with how it came to be."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from planner.files import written_whole
from planner.version import __version__


def write_document(path: Path | None, command: Sequence[str], **parts: Any) -> None:
    """One JSON object: a manifest, and its parts; nothing where there is no path.

    Raises
    ------
    OutputError
        It cannot be written.
    """
    if path is None:
        return
    manifest = {
        "version": __version__,
        "command": shlex.join(["planner", *command]),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    with written_whole(path) as file:
        json.dump({"manifest": manifest, **parts}, file, indent=1, default=str)
        file.write("\n")

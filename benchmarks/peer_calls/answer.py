"""What runs in a peer's own Python: rows come as lines of JSON, answers go back as lines of JSON.

Nothing of planner is imported here. The first line of the answer names the version.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

Row = Mapping[str, Any]


def installed(distribution: str) -> str:
    """Version of a distribution in this Python; empty if it has none (a folder with a clone)."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""


def answer(number: str, predict: Callable[[Row], Mapping[str, float]]) -> None:
    """Answer every row of standard input; a row that the peer refuses gets the reason."""
    out = sys.stdout
    print(json.dumps({"version": number}), file=out, flush=True)
    for line in sys.stdin:
        row = json.loads(line)
        try:
            with contextlib.redirect_stdout(sys.stderr):  # peers print what they like
                found = {name: float(value) for name, value in predict(row).items()}
        except (Exception, SystemExit) as error:  # whatever a peer raises is its answer
            found = {"error": f"{type(error).__name__}: {error}"[:200]}
        print(json.dumps({"id": row["id"], **found}), file=out, flush=True)

"""What real parsers derive of launch files, in the environments made for them."""

from __future__ import annotations

import os
from typing import Any

from launch_parsers import CHECKOUTS, VARIABLE, ask, interpreter


def derive(parser: str, cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a parser derives of each case, in one process; "error" where it refused the case.

    The module scripts/launch_parsers/derive_PARSER.py says what a case and an answer hold.
    """
    return ask("derive", parser, cases)


def missing(parser: str) -> str:
    """Why a parser cannot be asked here; nothing where it can."""
    path = interpreter(parser)
    if (checkout := CHECKOUTS.get(parser)) and not os.environ.get(checkout):
        return f"{checkout} is not set: see CONTRIBUTING.md"
    return "" if path.exists() else f"{path} is missing: see {VARIABLE} in CONTRIBUTING.md"

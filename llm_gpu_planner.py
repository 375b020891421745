"""Starts planner, once it is sure that the package ``planner`` is that of this distribution.

Other distributions have an import package ``planner``, too. This module is what the command
``planner`` imports: it looks for the package without importing it, so that nothing of another
distribution runs. ``python -m llm_gpu_planner`` does the same as the command.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

DISTRIBUTION = "llm-gpu-planner"
WRONG_PACKAGE = 10
"""Exit code, that of `planner.errors.InstallError`."""
_OWN = os.path.join(os.path.dirname(os.path.realpath(__file__)), "planner", "__init__.py")
# A line that another package's file has not; a test compares it with ours.
_OWN_LINE = b"from planner.base.version import __version__"


def wrong_package() -> str:
    """Return why the package ``planner`` is not that of this distribution; empty if it is."""
    try:
        spec = find_spec("planner")
    except (ImportError, ValueError):
        spec = None
    found = os.path.realpath(spec.origin) if spec is not None and spec.origin else ""
    if os.path.normcase(found) != os.path.normcase(_OWN):
        if not found:
            return f"{os.path.dirname(_OWN)} is missing."
        return f"{found} comes before {os.path.dirname(_OWN)} on the import path."
    try:
        with open(_OWN, "rb") as file:
            is_own = _OWN_LINE in file.read()
    except OSError as error:
        return f"{_OWN} cannot be read ({error.strerror})."
    return "" if is_own else f"Another distribution has overwritten {_OWN}."


def main() -> None:
    """Run the command of ``sys.argv`` and exit with its code."""
    if reason := wrong_package():
        if "_PLANNER_COMPLETE" not in os.environ:  # a shell reads the output
            print(
                f"The Python package planner is not that of {DISTRIBUTION}; nothing was run.\n"
                f"{reason}\n"
                f"Install {DISTRIBUTION} in an environment of its own: pipx install {DISTRIBUTION}."
                "\nOr remove the other package, and folders with a planner from PYTHONPATH; then "
                f"pip install --force-reinstall --no-deps {DISTRIBUTION}.",
                file=sys.stderr,
            )
        sys.exit(WRONG_PACKAGE)
    from planner.__main__ import main as run

    run()


if __name__ == "__main__":
    main()

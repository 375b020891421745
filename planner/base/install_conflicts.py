"""Find other installed distributions with a package or a command named ``planner``.

A mixture of both packages is refused; the module ``llm_gpu_planner`` refuses the wrong package.
The check runs before every command, so its result for a folder of packages is cached until the
folder changes, and few modules are imported.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence

from planner.base.user_cache import cache_file, read_lines, write_lines
from planner.base.version import DISTRIBUTION, __version__

PACKAGE = "planner"
_FOLDER = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_MOST_KEPT = 64
# A folder may change twice within one tick of its file system's clock.
_SETTLED_AFTER_NS = 2_000_000_000

InstallCache = dict[
    str, tuple[str, list[str]]
]  # of a folder: its time, and others' names and versions


def version_line() -> str:
    """Version, distribution and folder of the running package."""
    return f"planner {__version__} (distribution {DISTRIBUTION}, in {_FOLDER}{os.sep}{PACKAGE})"


def check_conflicts() -> None:
    """Print on stderr which other distributions contain a ``planner``, and what to do.

    Raises InstallError if the files of one are mixed with those of this package.
    """
    if "_PLANNER_COMPLETE" in os.environ:  # a shell reads the output
        return
    # The command itself reports a stream that cannot be written.
    with contextlib.suppress(OSError, ValueError):
        folders = sys.path[0 if sys.flags.safe_path else 1 :]  # the first is the script's own
        for other, folder in conflicting_distributions(folders, cache_file("distributions.tsv")):
            if _is_mixed(other, folder):
                from planner.errors import InstallError

                raise InstallError(
                    f"{other} has a package planner in {folder}, too: its files are mixed with "
                    f"those of {DISTRIBUTION}; nothing was run.\n{_remedy(other)}"
                )
            print(
                f"Warning: {other} in {folder} also installs a package or command named planner, "
                f"and overwrites that of {DISTRIBUTION}, or is overwritten by it.\n"
                f"{_remedy(other)}",
                file=sys.stderr,
            )


def _remedy(other: str) -> str:
    """Return how to keep one of two distributions, or both."""
    return (
        f"Keep one: pip uninstall {other.split()[0]} {DISTRIBUTION}, then install {DISTRIBUTION} "
        f"again. Keep both: pipx install {DISTRIBUTION}, in an environment of its own."
    )


def _is_mixed(other: str, folder: str) -> bool:
    """Whether a distribution has a package planner in the folder that has ours."""
    if not os.path.samefile(folder, _FOLDER):
        return False
    return any(
        name == other.split()[0] and _has_package(name, os.path.join(folder, entry))
        for entry, name, _ in _distributions(folder)
    )


def conflicting_distributions(folders: Iterable[str], cache: str) -> list[tuple[str, str]]:
    """Return other installed distributions with a ``planner``, with their folders.

    What a folder had is read from the file ``cache`` while the folder's time is the same, else
    looked up and kept there.
    """
    cached = _read(cache)
    looked_up, conflicts = False, []
    for folder in dict.fromkeys(folders):
        try:
            time_ns = os.stat(folder).st_mtime_ns
        except (OSError, ValueError):
            time_ns = 0
        if not time_ns:
            continue
        if cached.get(folder, ("", []))[0] != str(time_ns):
            # Moved to the end: the oldest are dropped first.
            cached.pop(folder, None)
            names = [*_others_in(folder)]
            is_settled = time.time_ns() - time_ns > _SETTLED_AFTER_NS
            cached[folder] = (str(time_ns) if is_settled else "", names)
            looked_up |= is_settled
        conflicts += [(name, folder) for name in cached[folder][1]]
    if looked_up:
        rows = ["\t".join((folder, time_ns, *names)) for folder, (time_ns, names) in cached.items()]
        write_lines(cache, rows[-_MOST_KEPT:])
    return conflicts


def _others_in(folder: str) -> Iterator[str]:
    """Yield "name version" of each other distribution in a folder that has a planner package."""
    for entry, name, version in _distributions(folder):
        if name != DISTRIBUTION and _has_planner(name, os.path.join(folder, entry)):
            yield f"{name} {version}".strip()


def _distributions(folder: str) -> Iterator[tuple[str, str, str]]:
    """Yield the metadata folder, normalized name and version of each distribution in a folder."""
    try:
        entries = sorted(os.listdir(folder))
    except OSError:
        return
    for entry in entries:
        stem, kind = os.path.splitext(entry)
        if kind in (".dist-info", ".egg-info"):
            name, _, version = stem.partition("-")
            normalized = name.replace("_", "-").replace(".", "-").lower()
            yield entry, normalized, version.split("-")[0]


def _has_planner(name: str, metadata: str) -> bool:
    """Return whether a distribution installs a package or command named planner."""
    entry_points = read_lines(os.path.join(metadata, "entry_points.txt"))
    return _names_command(entry_points) or _has_package(name, metadata)


def _has_package(name: str, metadata: str) -> bool:
    """Return whether a distribution installs a package named planner."""
    return (
        name == PACKAGE
        or PACKAGE in read_lines(os.path.join(metadata, "top_level.txt"))
        or any(
            line.startswith((f"{PACKAGE}/", f"{PACKAGE}.py,"))
            for line in read_lines(os.path.join(metadata, "RECORD"))
        )
    )


def _names_command(entry_points: Sequence[str]) -> bool:
    """Return whether these lines of entry_points.txt define a command named planner."""
    section, names = "", set()
    for line in entry_points:
        if line.startswith("["):
            section = line.strip()
        elif section in ("[console_scripts]", "[gui_scripts]"):
            names.add(line.partition("=")[0].strip())
    return PACKAGE in names


def _read(cache: str) -> InstallCache:
    rows = (line.split("\t") for line in read_lines(cache) if "\t" in line)
    return {row[0]: (row[1], [name for name in row[2:] if name]) for row in rows}

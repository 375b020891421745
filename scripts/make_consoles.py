"""Write what commands print now into the console blocks of README and docs.

Where a block leaves lines out (``...``), the lines that stand for what was shown are found by
their words, whatever the numbers; places that are not found are told and left as they are:

    python scripts/make_consoles.py [PAGE ...]    # such as README.md, serving.md, start/train.md
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", *sorted(ROOT.glob("docs/[!g]*/*.md")))
ELIDED = "..."
_BLOCK = re.compile(r"(?<=```console\n).*?(?=```)", re.DOTALL)
_NUMBERS = re.compile(r"[\d.,]+|[-=*]+")
_ALIKE = 0.6
_LONGER = 4
"""How many lines a part may grow or shrink by."""


def refreshed(block: str, page: str) -> str:
    """A console block with what its commands print now."""
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "docs").symlink_to(ROOT / "docs")
        return parts[0] + "".join(f"$ {_session(part, folder, page)}" for part in parts[1:])


def _session(part: str, folder: Path, page: str) -> str:
    command, _, shown = part.partition("\n")
    printed = _printed(command, folder)
    lines = "\n".join(_aligned(shown.splitlines(), printed, f"{page}: {command}"))
    return f"{command}\n{lines}\n" if lines else f"{command}\n"


def _printed(command: str, folder: Path) -> list[str]:
    words = shlex.split(command)
    if words[0] == "planner":
        words = [sys.executable, "-m", *words]
    done = subprocess.run(
        words,
        cwd=folder,
        env={**os.environ, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=False,
    )
    return [line.rstrip() for line in (done.stdout + done.stderr).splitlines()]


def _aligned(shown: Sequence[str], printed: Sequence[str], where: str) -> Iterator[str]:
    """The lines to show: those left out stay so."""
    chunks = _chunks(shown)
    if ELIDED not in shown:
        yield from printed if shown else ()
        return
    at = 0
    for chunk in chunks:
        if chunk == [ELIDED]:
            yield ELIDED
            continue
        start, end = _place(chunk, printed, at, is_last=chunk is chunks[-1])
        if end == start:
            print(f"{where}: not found: {chunk[0]!r}", file=sys.stderr)
            yield from chunk
            continue
        yield from printed[start:end]
        at = end


def _chunks(shown: Sequence[str]) -> list[list[str]]:
    found: list[list[str]] = [[]]
    for line in shown:
        if line == ELIDED:
            found += [[ELIDED], []]
        else:
            found[-1].append(line)
    return [chunk for chunk in found if chunk]


def _place(
    chunk: Sequence[str], printed: Sequence[str], at: int, *, is_last: bool
) -> tuple[int, int]:
    """Where the lines are that say the same in other numbers; an empty place if nowhere."""
    best, place = 0.0, (at, at)
    heads = [n for n in range(at, len(printed)) if _likeness(chunk[0], printed[n]) >= _ALIKE]
    for start in heads:
        ends = range(start + max(len(chunk) - _LONGER, 1), start + len(chunk) + _LONGER + 1)
        for end in (end for end in ends if end <= len(printed)):
            last = _likeness(chunk[-1], printed[end - 1])
            likeness = _likeness("\n".join(chunk), "\n".join(printed[start:end]))
            if is_last and end == len(printed):
                last = 1.0
            if last >= _ALIKE and likeness + last > best:
                best, place = likeness + last, (start, end)
    return place


def _likeness(one: str, other: str) -> float:
    """1 where two texts differ in numbers alone."""
    pair = (_NUMBERS.sub("#", one), _NUMBERS.sub("#", other))
    return difflib.SequenceMatcher(None, *pair, autojunk=False).ratio()


def main(names: Sequence[str]) -> None:
    """Refresh every page, or those that are named."""
    for path in PAGES:
        page = str(path.relative_to(ROOT))
        if names and not page.endswith(tuple(f"/{name}" for name in names)) and page not in names:
            continue
        text = path.read_text(encoding="utf-8")
        new = _BLOCK.sub(lambda found, name=page: refreshed(found[0], name), text)
        if new != text:
            path.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

"""Make the pictures of `docs/pictures.md` again, by the commands that stand there above them.

python scripts/make_pictures.py [NAME ...]    # those whose files have such a name; all by default
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from PIL import Image

from planner.__main__ import run

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "pictures.md"
_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_COLORS = 128
_FILES = ("--plot", "--timeline")


def commands() -> Iterator[list[str]]:
    """The arguments of the commands of the page that draw something."""
    for block in _BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        for line in block.splitlines():
            words = shlex.split(line)
            if words[:1] == ["planner"] and {*_FILES} & {*words}:
                yield words[1:]


def file_of(words: list[str]) -> str:
    """The picture that a command draws, from the top of the repository."""
    return next(words[words.index(option) + 1] for option in _FILES if option in words)


def make_small(path: Path) -> None:
    """A picture with as few colours as it needs; Pillow comes with matplotlib."""
    with Image.open(path) as picture:
        picture.convert("RGB").quantize(_COLORS, kmeans=4).save(path, optimize=True)


def main(names: list[str]) -> int:
    """Draw pictures; what sweeps write goes to a folder that is removed."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for words in commands():
            path = file_of(words)
            is_sweep = words[0] == "sweep"
            if names and not is_sweep and Path(path).stem not in names:
                continue
            found = [str(ROOT / path) if word == path else word for word in words]
            silent = "--quiet" in found or "show" in found
            with contextlib.redirect_stdout(io.StringIO()):
                code = run([*found, *([] if silent else ["--quiet"])])
            if code:
                return code
            make_small(ROOT / path)
            print(path, (ROOT / path).stat().st_size, "bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

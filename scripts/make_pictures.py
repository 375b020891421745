"""Make the pictures of `pictures.md` and `report.md` in `docs/how-to` again, by their commands.

python scripts/make_pictures.py [NAME ...]    # those whose files have such a name; all by default
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from PIL import Image

from planner.__main__ import run

ROOT = Path(__file__).parents[1]
PAGE, REPORTS = ROOT / "docs" / "how-to" / "pictures.md", ROOT / "docs" / "how-to" / "report.md"
PICTURES = "docs/static/pictures"
_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_COLORS = 32
_FILES = ("--plot", "--timeline")
SCREENS = {"report": (1100, 940, "light"), "report_narrow": (400, 1150, "dark")}
"""By the name of a report its width and height in pixels, and its colours."""


def commands() -> Iterator[list[str]]:
    """The arguments of the commands of the page that draw something."""
    yield from (words for words in _commands(PAGE) if {*_FILES} & {*words})


def reports() -> Iterator[tuple[str, list[list[str]]]]:
    """Each report that has a picture, and the commands before it that make it."""
    before: list[list[str]] = []
    for words in _commands(REPORTS):
        before.append(words)
        name = Path(words[words.index("-o") + 1]).stem if "-o" in words else ""
        if name in SCREENS:
            yield name, before
            before = []


def _commands(page: Path) -> Iterator[list[str]]:
    for block in _BLOCK.findall(page.read_text(encoding="utf-8")):
        for line in block.splitlines():
            words = shlex.split(line)
            if words[:1] == ["planner"]:
                yield words[1:]


def file_of(words: list[str]) -> str:
    """The picture that a command draws, from the top of the repository."""
    return next(words[words.index(option) + 1] for option in _FILES if option in words)


def make_small(path: Path) -> None:
    """A picture with as few colours as it needs; Pillow comes with matplotlib."""
    with Image.open(path) as picture:
        picture.convert("RGB").quantize(_COLORS, kmeans=4).save(path, optimize=True)


def shoot(html: Path, name: str) -> None:
    """Take a picture of the first screen of a page, with the browser that is installed."""
    from playwright.sync_api import sync_playwright

    width, height, scheme = SCREENS[name]
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    with sync_playwright() as tool:
        window = tool.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = window.new_page(
            viewport={"width": width, "height": height},
            color_scheme="dark" if scheme == "dark" else "light",
        )
        page.goto(html.as_uri())
        page.screenshot(path=ROOT / PICTURES / f"{name}.png")
        window.close()


def main(names: list[str]) -> int:
    """Draw pictures; what sweeps write goes to a folder that is removed."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for words in commands():
            path = file_of(words)
            is_sweep = words[0] == "sweep"
            if names and Path(path).stem not in names and (not is_sweep or {*names} <= {*SCREENS}):
                continue
            found = [str(ROOT / path) if word == path else word for word in words]
            silent = "--quiet" in found or "show" in found
            with contextlib.redirect_stdout(io.StringIO()):
                code = run([*found, *([] if silent else ["--quiet"])])
            if code:
                return code
            _finish(path)
        for name, lines in reports():
            if names and name not in names:
                continue
            for words in lines:
                with contextlib.redirect_stdout(io.StringIO()):
                    code = run([*words, "--quiet"])
                if code:
                    return code
            shoot(Path(folder) / f"{name}.html", name)
            _finish(f"{PICTURES}/{name}.png")
    return 0


def _finish(path: str) -> None:
    make_small(ROOT / path)
    print(path, (ROOT / path).stat().st_size, "bytes")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The pictures of the documentation are those of its commands."""

from __future__ import annotations

import itertools
import re
import struct

import make_pictures
import make_traffic

from planner.show.output_blocks import PICTURES


def test_every_picture_of_the_page_is_made_by_a_command_above_it() -> None:
    text = make_pictures.PAGE.read_text(encoding="utf-8")
    shown = re.findall(r"!\[[^]]+\]\(\.\./(static/pictures/[a-z_]+\.png)\)", text)
    made = [make_pictures.file_of(words) for words in make_pictures.commands()]
    assert made == [f"docs/{path}" for path in shown]
    for path in made:
        assert text.index(path) < text.index(f"(../{path.removeprefix('docs/')})")


def test_pictures_are_small_and_as_wide_as_asked() -> None:
    folder = make_pictures.ROOT / "docs" / "static" / "pictures"
    made = list(make_pictures.commands())
    assert {path.name for path in folder.iterdir()} == {
        *(make_pictures.file_of(words).rpartition("/")[2] for words in made),
        *(f"{name}.png" for name in make_pictures.SCREENS),
        make_traffic.PICTURE.name,
    }
    for words in made:
        content = (make_pictures.ROOT / make_pictures.file_of(words)).read_bytes()
        given = dict(itertools.pairwise(words))
        assert struct.unpack(">I", content[16:20])[0] == int(given.get("--picture-width", 1100))
        assert len(content) < 100_000


def test_reports_are_shown_as_they_are_on_a_screen() -> None:
    text = make_pictures.REPORTS.read_text(encoding="utf-8")
    assert [name for name, _ in make_pictures.reports()] == [*make_pictures.SCREENS]
    for name, (width, height, _) in make_pictures.SCREENS.items():
        path = f"static/pictures/{name}.png"
        assert text.index(f"-o {name}.html") < text.index(f"(../{path})")
        content = (make_pictures.ROOT / "docs" / path).read_bytes()
        assert struct.unpack(">II", content[16:24]) == (width, height)
        assert len(content) < 100_000


def test_every_kind_of_picture_has_an_example() -> None:
    used = {"timeline"}
    for words in make_pictures.commands():
        given = dict(itertools.pairwise(words))
        used.add(given.get("--picture", PICTURES[words[0]][0]))
    assert used == {"timeline", *(name for names in PICTURES.values() for name in names)}

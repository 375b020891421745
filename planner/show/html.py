"""Pages as HTML and as Markdown."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from planner.base.version import __version__
from planner.errors import MissingDependencyError
from planner.show.page import (
    BEST,
    Bars,
    Beside,
    Cell,
    Code,
    Drawn,
    Lines,
    Page,
    Pairs,
    Table,
    Title,
    joined,
)
from planner.show.theme import THEMES, Theme, part_colors, part_label

if TYPE_CHECKING:
    from jinja2 import Environment


_PACKAGE = "planner.show"


def check_installed(extra: str = "report") -> None:
    """Check that what makes pages is installed.

    Raises
    ------
    MissingDependencyError
        jinja2 or plotly is missing.
    """
    missing = [name for name in ("jinja2", "plotly") if find_spec(name) is None]
    if missing:
        raise MissingDependencyError(
            f"Pages need {' and '.join(missing)}: pip install 'llm-gpu-planner[{extra}]'."
        )


def page_html(page: Page) -> str:
    """One file with the library of charts, the style and the scripts in it."""
    scripts = [static("page.js")]
    allowed = [*scripts]
    if page.charts:
        scripts.insert(0, static("library.js"))
        allowed = [*scripts, plotly_script()]
    template = environment().get_template("report.html")
    return template.render(
        page=page,
        style=style(),
        scripts=scripts,
        library=packed_library() if page.charts else "",
        policy=_policy(allowed),
        data=page_data(page),
    )


def page_data(page: Page) -> dict[str, object]:
    """What the script of a page draws with: charts, and colours by name on light and dark."""
    bars = [block for block in page.blocks if isinstance(block, Bars)]
    names = [*dict.fromkeys(name for block in bars for name in block.parts)]
    return {
        "charts": page.charts,
        "parts": {name: part_label(name) for name in names},
        "themes": {name: _colors(theme, names) for name, theme in THEMES.items()},
    }


def _colors(theme: Theme, parts: list[str]) -> dict[str, object]:
    return {
        "background": theme.background,
        "panel": theme.panel,
        "text": theme.text,
        "muted": theme.muted,
        "grid": theme.grid,
        "recommended": theme.recommended,
        "series": [*theme.series],
        "parts": part_colors(parts, theme),
    }


@cache
def environment(*others: str) -> Environment:
    """The templates, those of ``others``, packages, among them; what they are given never becomes
    markup.
    """
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=ChoiceLoader([PackageLoader(name) for name in (*others, _PACKAGE)]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals["version"] = __version__
    made.filters["joined"] = joined
    made.policies["json.dumps_kwargs"] = {"sort_keys": False}  # parts of bars have an order
    return made


@cache
def static(name: str, package: str = _PACKAGE) -> str:
    """A script or style of ours."""
    return files(package).joinpath("static", name).read_text(encoding="utf-8")


@cache
def style() -> str:
    """The style of pages, with the colours of both themes."""
    names = ("background", "panel", "text", "muted", "grid", "recommended", "bad")
    light, dark = (
        "".join(f"--{name}:{getattr(theme, name)};" for name in names) for theme in THEMES.values()
    )
    both = f":root{{{light}}}@media (prefers-color-scheme:dark){{:root{{{dark}}}}}"
    return both + static("page.css")


@cache
def plotly_script() -> str:
    """The library that draws charts."""
    return files("plotly").joinpath("package_data", "plotly.min.js").read_text(encoding="utf-8")


@cache
def packed_library() -> str:
    """The same compressed, in letters that end no element: ``library.js`` unpacks it."""
    packed = gzip.compress(plotly_script().encode(), mtime=0)
    return base64.b85encode(packed).decode().replace("<", ",")


def _policy(scripts: list[str]) -> str:
    """A page may run these scripts and nothing else, and may ask nothing of anybody."""
    hashes = (
        base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts
    )
    allowed = " ".join(f"'sha256-{one}'" for one in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:"
    )


MOST_ROWS = 20
"""Rows of a table; the page and the result have all."""

# What Markdown takes for markup, or a repository's page for a person or an issue.
_MARKUP = re.compile(r"([\\`*_{}\[\]#|!~$@])")
_TAKEN_FOR_LISTS = re.compile(r"^([-+=]|\d+[.)] )")
_EMPTY_LINES = re.compile(r"\n{3,}")


def markdown(page: Page) -> str:
    """The text of a page in the Markdown of repositories."""
    lines = [f"# {plain(page.title)}", "", *_broken(page.question), ""]
    lines += [words for line in page.answer for words in (f"**{plain(line)}**", "")]
    lines += ["", *_pairs(page.reached), "", *_broken(page.sure), ""]
    for section in page.sections:
        lines += [f"## {plain(section.title)}", ""]
        for block in joined(section.blocks):
            if write := _WRITERS.get(type(block)):
                lines += [*write(block), ""]
    return _EMPTY_LINES.sub("\n\n", "\n".join(lines)).rstrip() + "\n"


def plain(words: str) -> str:
    """A text that stands in Markdown as it is, on one line.

    >>> plain("a|b <i>")
    'a\\\\|b &lt;i&gt;'
    """
    flat = " ".join(words.split()).replace("&", "&amp;")
    flat = _MARKUP.sub(r"\\\1", flat).replace("<", "&lt;").replace(">", "&gt;")
    return _TAKEN_FOR_LISTS.sub(r"\\\1", flat)


def _broken(lines: Any) -> list[str]:
    """Lines that stay lines: paragraphs."""
    return [words for line in lines for words in (plain(line), "")]


def _pairs(pairs: Mapping[str, str]) -> list[str]:
    found = [f"| {plain(name)} | {plain(value)} |" for name, value in pairs.items()]
    return ["| | |", "|---|---|", *found] if found else []


def _code(block: Code) -> list[str]:
    """A command between more backticks than it has itself."""
    fence = "`" * (3 + max(map(len, re.findall("`+", block.text)), default=0))
    return [fence, *block.text.splitlines(), fence]


def _title(words: str) -> list[str]:
    return [f"**{plain(words)}**", ""]


def _table(table: Table) -> Iterator[str]:
    if table.caption:
        yield from _title(table.caption)
    yield "| " + " | ".join(plain(head.text.strip() or head.title) for head in table.heads) + " |"
    yield "|" + "|".join("--:" if head.numeric else "---" for head in table.heads) + "|"
    for number, row in enumerate(table.rows[:MOST_ROWS]):
        words = [*map(_cell, row)]
        if table.mark_of(number) == BEST and words:
            words[0] = f"**{words[0]}**"
        yield "| " + " | ".join(words) + " |"
    yield ""
    if len(table.rows) > MOST_ROWS:
        yield f"{MOST_ROWS} of {len(table.rows):,} rows."
    yield from _broken(table.notes)


def _cell(cell: Cell) -> str:
    return f"{plain(cell.text)} ({plain(cell.more)})" if cell.more else plain(cell.text)


_WRITERS: Mapping[type[Any], Callable[[Any], Any]] = {
    Title: lambda block: _title(block.text),
    Table: _table,
    Beside: lambda block: [
        line for title, table in block.tables.items() for line in [*_title(title), *_table(table)]
    ],
    Drawn: lambda block: _code(Code(text="\n".join(block.lines(80, True)))),
    Pairs: lambda block: _pairs(block.pairs),
    Lines: lambda block: [f"- {plain(line)}" for line in block.lines],
    Code: _code,
}

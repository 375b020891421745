"""Pages as HTML and as Markdown."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from planner.base.version import __version__
from planner.show.output_blocks import (
    BEST,
    Bars,
    Cell,
    Code,
    ColumnHead,
    KeyValues,
    Lines,
    Page,
    RankingChart,
    SideBySide,
    Table,
    TextChart,
    Title,
    joined,
)
from planner.show.theme import DARK, LIGHT, part_colors, part_label

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


_PACKAGE = "planner.show"
# Abbreviations such as TTFT; prefixes of degrees such as the tp of tp8.
_ABBREVIATION, _DEGREE = re.compile(r"(?!GPU|USD)[A-Z]{3,}"), re.compile(r"[a-z]{2,4}")


def page_html(page: Page) -> str:
    """Return a page as one HTML file that contains its style and its script."""
    script = static("page.js")
    template = environment().get_template("report.html")
    # The page may run this script only and may not request anything from other hosts.
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{allowed}'; style-src 'unsafe-inline'; "
        "img-src data: blob:"
    )
    return template.render(page=page, style=style(), script=script, policy=policy)


def colors_of(bars: Bars) -> dict[str, str]:
    """A colour of its own for each part of bars, on light and dark, as CSS writes it."""
    light, dark = (part_colors(bars.parts, theme) for theme in (LIGHT, DARK))
    return {part: f"light-dark({light[part]},{dark[part]})" for part in bars.parts}


def explained(text: str, meanings: Mapping[str, str]) -> Markup:
    """Return a text as HTML in which terms such as ``TTFT`` and ``tp8`` have tooltips."""
    from markupsafe import Markup

    names = [f"{name}(?=s?\\b)" for name in meanings if _ABBREVIATION.fullmatch(name)]
    names += [f"{name}(?=\\d+\\b)" for name in meanings if _DEGREE.fullmatch(name)]
    if not names:
        return Markup.escape(text)
    pattern = re.compile(rf"\b({'|'.join(names)})\d*")
    markup, end = Markup(), 0
    for match in pattern.finditer(text):
        mark = Markup('<abbr data-tip="{}" tabindex="0">{}</abbr>')
        markup += Markup.escape(text[end : match.start()])
        markup += mark.format(meanings[match[1]], match[0])
        end = match.end()
    return markup + Markup.escape(text[end:])


def css(head: ColumnHead, cell: Cell) -> Markup:
    """Return the ``class`` attribute of a table cell; empty for a text cell without a mark."""
    from markupsafe import Markup

    looks = {"n": head.numeric, "w": cell.is_long, "shade": cell.shade is not None}
    names = [*(name for name, is_so in looks.items() if is_so), *filter(None, [cell.mark])]
    return Markup(' class="{}"').format(" ".join(names)) if names else Markup()


def percent_of(value: float, total: float) -> str:
    """Return the share of a value in a total as a CSS percentage.

    >>> percent_of(1, 8)
    '12.50%'
    """
    return f"{100 * value / total:.2f}%"


def hint_text(hints: Mapping[str, str]) -> str:
    """Names and what they are, a line each."""
    return "\n".join(f"{name}: {value}" for name, value in hints.items() if value)


@cache
def environment(*others: str) -> Environment:
    """Return the Jinja environment with the templates of planner and of ``others``.

    Values in templates are escaped.
    """
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    templates = Environment(
        loader=ChoiceLoader([PackageLoader(name) for name in (*others, _PACKAGE)]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.globals["version"] = __version__
    filters: tuple[Callable[..., object], ...] = (
        joined, colors_of, explained, hint_text, part_label, percent_of,
    )  # fmt: skip
    templates.filters |= {function.__name__: function for function in filters}
    templates.filters["short"] = "{:.8g}".format
    templates.globals["css"] = css
    return templates


@cache
def static(name: str, package: str = _PACKAGE) -> str:
    """The text of a script or style of a package."""
    return files(package).joinpath("static", name).read_text(encoding="utf-8")


@cache
def style() -> str:
    """Return the CSS of pages, with the colours of both themes."""
    light, dark = LIGHT, DARK
    names = ("background", "panel", "text", "muted", "grid", "recommended", "bad")
    pairs = {name: (getattr(light, name), getattr(dark, name)) for name in names}
    pairs |= {f"s{n}": pair for n, pair in enumerate(zip(light.series, dark.series, strict=True))}
    colors = "".join(
        f"--{name}:light-dark({light_color},{dark_color});"
        for name, (light_color, dark_color) in pairs.items()
    )
    return f":root{{{colors}}}" + static("page.css")


MAX_ROWS = 20
"""Maximum rows of a Markdown table."""

# Characters of Markdown markup, and of mentions and issues on repository pages.
_MARKUP = re.compile(r"([\\`*_{}\[\]#|!~$@])")
_LIST_MARKER = re.compile(r"^([-+=]|\d+[.)] )")
_EMPTY_LINES = re.compile(r"\n{3,}")


def markdown(page: Page) -> str:
    """Return a page as Markdown text, as GitHub shows it."""
    lines = [
        f"# {escape_markdown(page.title)}",
        "",
        f"**{escape_markdown(page.headline)}**" * bool(page.headline),
        "",
    ]
    lines += [*_figures(page), "", *_broken(page.question), "", *_broken(page.answer)]
    lines += ["", *_pairs(page.reached), "", *_broken(page.sure), ""]
    for section in page.sections:
        lines += [f"## {escape_markdown(section.title)}", ""]
        for block in joined(section.blocks):
            if write := _WRITERS.get(type(block)):
                lines += [*write(block), ""]
    return _EMPTY_LINES.sub("\n\n", "\n".join(lines)).rstrip() + "\n"


def _figures(page: Page) -> Iterator[str]:
    """Yield a Markdown line for each key number of the answer, and its evidence."""
    for figure in page.figures:
        between = f" ({escape_markdown(figure.between)})" if figure.between else ""
        yield f"- {escape_markdown(figure.name)}: **{escape_markdown(figure.text)}**{between}"
    if page.evidence is not None:
        yield f"- {escape_markdown(page.evidence.text)}: {escape_markdown(page.evidence.title)}"


def escape_markdown(text: str) -> str:
    """Return a text on one line with its Markdown and HTML markup escaped.

    >>> escape_markdown("a|b <i>")
    'a\\\\|b &lt;i&gt;'
    """
    flat = " ".join(text.split()).replace("&", "&amp;")
    flat = _MARKUP.sub(r"\\\1", flat).replace("<", "&lt;").replace(">", "&gt;")
    return _LIST_MARKER.sub(r"\\\1", flat)


def _broken(lines: Iterable[str]) -> list[str]:
    """Each line as a paragraph."""
    return [text for line in lines for text in (escape_markdown(line), "")]


def _pairs(pairs: Mapping[str, str]) -> list[str]:
    rows = [
        f"| {escape_markdown(name)} | {escape_markdown(value)} |" for name, value in pairs.items()
    ]
    return ["| | |", "|---|---|", *rows] if rows else []


def _code(block: Code) -> list[str]:
    """A fenced code block; the fence is longer than any run of backticks in the code."""
    fence = "`" * (3 + max(map(len, re.findall("`+", block.text)), default=0))
    return [fence, *block.text.splitlines(), fence]


def _title(text: str) -> list[str]:
    return [f"**{escape_markdown(text)}**", ""]


def _table(table: Table) -> Iterator[str]:
    """Yield the Markdown lines of a table, with at most `MAX_ROWS` rows and the best ones."""
    if table.caption:
        yield from _title(table.caption)
    yield (
        "| "
        + " | ".join(escape_markdown(head.text.strip() or head.title) for head in table.heads)
        + " |"
    )
    yield "|" + "|".join("--:" if head.numeric else "---" for head in table.heads) + "|"
    for number, row in enumerate(table.rows):
        if number >= MAX_ROWS and table.mark_of(number) != BEST:
            continue
        cells = [*map(_cell, row)]
        if table.mark_of(number) == BEST and cells:
            cells[0] = f"**{cells[0]}**"
        yield "| " + " | ".join(cells) + " |"
    yield ""
    if len(table.rows) > MAX_ROWS:
        yield f"The first {MAX_ROWS} of {len(table.rows):,} rows, and the recommended one."
    yield from _broken(table.notes)


def _cell(cell: Cell) -> str:
    """Return a cell as Markdown text; its smaller text follows in parentheses."""
    if cell.more:
        return f"{escape_markdown(cell.text)} ({escape_markdown(cell.more)})"
    return escape_markdown(cell.text)


_WRITERS: Mapping[type, Callable[..., Iterable[str]]] = {
    Title: lambda block: _title(block.text),
    Table: _table,
    SideBySide: lambda block: [
        line for title, table in block.tables.items() for line in [*_title(title), *_table(table)]
    ],
    TextChart: lambda block: _code(Code(text="\n".join(block.lines(80, True)))),
    KeyValues: lambda block: _pairs(block.pairs),
    RankingChart: lambda block: [
        *_title(block.caption),
        *_pairs({row.label: row.text for row in block.rows}),
    ],
    Lines: lambda block: [f"- {escape_markdown(line)}" for line in block.lines],
    Code: _code,
}

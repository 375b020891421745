"""A page as HTML: one file that asks nothing of anybody, or a page of `planner ui`."""

from __future__ import annotations

import base64
import gzip
import hashlib
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from typing import TYPE_CHECKING

from planner.errors import MissingDependencyError
from planner.show.page import Bars, Page, joined
from planner.show.theme import THEMES, Theme, part_colors, part_label
from planner.version import __version__

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
    light, dark = (_variables(theme) for theme in THEMES.values())
    both = f":root{{{light}}}@media (prefers-color-scheme:dark){{:root{{{dark}}}}}"
    return both + static("page.css")


def _variables(theme: Theme) -> str:
    names = ("background", "panel", "text", "muted", "grid", "recommended", "bad")
    return "".join(f"--{name}:{getattr(theme, name)};" for name in names)


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

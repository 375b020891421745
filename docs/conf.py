"""How Sphinx makes the site: `python -m sphinx -W docs build/site`.

The pages in this folder are read on the repository's page, too: what only the site can show is
made from the package (`scripts/site_pages.py`) into `docs/generated`, which git ignores.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path

_DOCS = Path(__file__).parent
sys.path[:0] = [str(_DOCS.parent / "scripts"), str(_DOCS.parent)]

import site_pages  # noqa: E402
from docutils.nodes import math, math_block  # noqa: E402
from docutils.utils.math.latex2mathml import tex2mathml  # noqa: E402

from planner.base.version import DISTRIBUTION, __version__  # noqa: E402

# Pages become millions of nodes that stay: looking for cycles among them takes a quarter of all.
gc.set_threshold(500_000)

project = "planner"
author = f"the authors of {DISTRIBUTION}"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["build"]

html_theme = "furo"
html_title = f"planner {__version__}"
html_static_path = ["static"]
html_css_files = ["planner.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False

default_role = "code"
myst_heading_anchors = 4
smartquotes = False  # texts are shown as they are written, in a tenth less time
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
napoleon_google_docstring = False
napoleon_use_rtype = False
math_numfig = False
html_math_renderer = "mathml"


def setup(app):
    """Register what the site needs in addition to the extensions."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    app.connect("builder-inited", lambda _: site_pages.write(_DOCS / "generated"))
    app.connect("source-read", lambda _, name, source: site_pages.prepare(name, source))
    app.connect("doctree-resolved", lambda _, tree, name: _check_formulas(tree))
    app.connect(
        "autodoc-process-docstring", site_pages.prepare_docstring, priority=400
    )  # before napoleon


def _check_formulas(tree):
    """Raise what a formula has wrong: the gate's build reads every page and writes none."""
    for node in tree.findall(lambda node: isinstance(node, math | math_block)):
        tex2mathml(node.astext())


def _inline(writer, node):
    _mathml(writer, node, is_block=False)


def _block(writer, node):
    _mathml(writer, node, is_block=True)


def _mathml(writer, node, *, is_block):
    """Formulas as MathML: browsers draw it without a script, and without a network."""
    from docutils.nodes import SkipNode

    formula = tex2mathml(node.astext(), as_block=is_block)
    writer.body.append(f'<div class="math">{formula}</div>' if is_block else formula)
    raise SkipNode

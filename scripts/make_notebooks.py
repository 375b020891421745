"""Run the notebooks of `docs/notebooks` and write what their cells print, and their pages.

The cells need no kernel: they run in one namespace, in an empty folder. Run it after a change of
what is predicted; a test fails while the outputs are not what the cells print:

    python scripts/make_notebooks.py [NAME ...]
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "notebooks"
_WIDTH = "80"


def run_cell(source: str, names: dict[str, Any]) -> str:
    """Run the code of a cell; return what it prints, then the text of its last expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
            if value is not None:
                print(value)
    return printed.getvalue()


def with_outputs(notebook: dict[str, Any]) -> dict[str, Any]:
    """Run a notebook in an empty folder; return it with the outputs of its cells."""
    names: dict[str, Any] = {"__name__": "notebook"}
    before, cells, number = Path.cwd(), [], 0
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        os.chdir(folder)
        stack.callback(os.chdir, before)
        for cell in notebook["cells"]:
            if cell["cell_type"] != "code":
                cells.append(cell)
                continue
            number += 1
            text = run_cell("".join(cell["source"]), names)
            output = {"name": "stdout", "output_type": "stream", "text": text.splitlines(True)}
            cells.append({**cell, "execution_count": number, "outputs": [output] if text else []})
    return {**notebook, "cells": cells}


def notebook_page(notebook: dict[str, Any]) -> str:
    """Return a notebook as a Markdown page for the site."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        text = "".join("".join(output["text"]) for output in cell["outputs"])
        parts += [f"```text\n{text.rstrip()}\n```"] if text else []
    return "\n\n".join(parts) + "\n"


def read(path: Path) -> dict[str, Any]:
    """Read a notebook."""
    notebook: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return notebook


def main(names: list[str]) -> None:
    """Run notebooks, all by default, and write their outputs."""
    os.environ["COLUMNS"] = _WIDTH
    for path in sorted(FOLDER.glob("*.ipynb")):
        if not names or path.stem in names:
            text = json.dumps(with_outputs(read(path)), indent=1, ensure_ascii=False)
            path.write_text(text + "\n", encoding="utf-8")
            print(path.relative_to(ROOT))


if __name__ == "__main__":
    main(sys.argv[1:])

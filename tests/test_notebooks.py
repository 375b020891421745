"""The notebooks run, and print what they show."""

from __future__ import annotations

import json
from typing import Any

import pytest
from make_notebooks import FOLDER, notebook_page, read, run_cell, with_outputs

NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def outputs(notebook: dict[str, Any]) -> list[str]:
    """The text of the output of each cell of code."""
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return ["".join("".join(output["text"]) for output in cell["outputs"]) for cell in cells]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_what_it_shows(path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    notebook = read(path)
    assert outputs(with_outputs(notebook)) == outputs(notebook), "run scripts/make_notebooks.py"
    assert all(outputs(notebook))


def test_there_are_three_notebooks_in_one_format() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["calibrate", "plan_pretraining", "size_service"]
    for path in NOTEBOOKS:
        notebook = read(path)
        assert notebook["nbformat"] == 4
        assert path.read_text("utf-8") == json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
        page = notebook_page(notebook)
        assert page.startswith("# ")
        assert page.count("```python") == len(outputs(notebook))


def test_a_cell_shows_its_last_expression() -> None:
    names: dict[str, Any] = {}
    assert run_cell("print(1)\nx = 2\nx + 1", names) == "1\n3\n"
    assert run_cell("None", names) == ""
    with pytest.raises(ZeroDivisionError):
        run_cell("1 / 0", names)

"""Blocks of code in texts for people."""

from __future__ import annotations

import pytest

from planner.documents.code_blocks import blocks_of, without_prompts
from planner.documents.yaml_positions import documents


def _blocks(text: str, *languages: str) -> list[tuple[str, str]]:
    return [(language, code.strip()) for language, code in blocks_of(text, languages)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a\n```bash\nx\n```\nb\n", [("bash", "x")]),
        ("```\nout\n  ```python\n  x = 1\n  ```\n```\n\n```bash\ny\n```\n", [("bash", "y")]),
        ("````md\n```bash\nx\n```\n````\n", []),
        ("```bash\nx\n```bash\ny\n```\n", [("bash", "x"), ("bash", "y")]),
        ("~~~ bash title=a\nx\n~~~\n", [("bash", "x")]),
        (".. code-block:: bash\n\n   x\n", [("bash", "x")]),
        ("```bash\nx\n", []),
    ],
)
def test_fences_with_a_language_begin_a_block(text: str, found: list[tuple[str, str]]) -> None:
    assert _blocks(text, "bash") == found


def test_lines_of_a_block_are_those_of_the_text() -> None:
    ((_, code),) = blocks_of("a\n- b\n  ```python\n  if x:\n      y\n  ```\n", ("python",))

    assert code.split("\n")[3:] == ["if x:", "    y", ""]


def test_indented_documents_stay_apart_and_in_place() -> None:
    text = "=== one\n    ```yaml\n    kind: A\n    ---\n    kind: B\n    ```\n"
    ((_, code),) = blocks_of(text, ("yaml",))

    assert [one.get("kind").text for one in documents(code, "a.md")] == ["A", "B"]
    assert code.index("kind: B") == text.index("kind: B")


def test_prompts_are_blanks() -> None:
    assert without_prompts("$ a $b\n  > c\n$d") == "  a $b\n    c\n$d"

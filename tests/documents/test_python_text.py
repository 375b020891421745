"""Calls in programs are told as far as text tells them; nothing of a program is run."""

from __future__ import annotations

import json

import pytest
from rows import each

from planner.documents.code_blocks import cells_of, program_and_shell
from planner.documents.python_calls import Call, UnknownValue, parse_calls, parse_functions
from planner.errors import LaunchError


def _given(text: str) -> dict[str, object]:
    """The keywords of the one call of ``f`` in a program."""
    (call,) = [one for one in parse_calls(text, "p.py") if one.ends("f")]
    return dict(call.keywords)


@each(
    ("text", "told"),
    [
        ("f(x=4)", 4),
        ("n = 2\nf(x=n * 4 + 1)", 9),
        ("a = 'b'\nf(x=f'{a}-{2}')", "b-2"),
        ("def g(n=3):\n    f(x=n)", 3),
        ("def g(n=3):\n    f(x=n)\ng(5)", 5),
        ("c = {'x': [1, 2]}\nf(**c)", [1, 2]),
        ("c = dict(x=1)\nf(x=c['x'])", 1),
        ("import torch\nf(x=torch.bfloat16)", "bfloat16"),
        ("import os\nf(x=int(os.environ.get('X', '7')))", 7),
        ("import torch\nf(x=not torch.cuda.is_bf16_supported())", False),
        ("p.add_argument('--my-x', default=6)\nargs = p.parse_args()\nf(x=args.my_x)", 6),
        ("class C:\n    n: int = 5\nc = C()\nf(x=c.n)", 5),
        ("class C:\n    n: int = 5\nc = C(n=6)\nf(x=c.n)", 6),
        ("n = 1\nn += 1\nn *= 3\nf(x=n)", 6),
    ],
)
def test_values_that_text_tells(text: str, told: object) -> None:
    assert _given(text) == {"x": told}


@each(
    "text",
    [
        "f(x=unknown)",
        "n = 1\nn = 2\nf(x=n)",
        "n = 1\ng(n)\nn += 1\nf(x=n)",
        "for n in (1, 2):\n    f(x=n)",
        "def g(n=3):\n    f(x=n)\ng(4)\ng(5)",
        "def g(n):\n    f(x=n)",
        "c = {'n': 1}\nc['n'] = 2\nf(x=c['n'])",
        "n = n\nf(x=n)",
        "f(x=torch.cuda.device_count())",
        "f(x=1 // 0)",
        "f(x=2.0 ** 0.5 ** -1e18)",
        "f(x=int('nan'))",
    ],
)
def test_values_that_only_a_run_tells_are_open(text: str) -> None:
    assert isinstance(_given(text)["x"], UnknownValue)


def test_names_are_those_of_their_modules() -> None:
    calls = parse_calls(
        "import sglang as sgl\nfrom vllm import LLM as E\nsgl.Engine()\nE()", "p.py"
    )

    assert [(one.name, one.line) for one in calls] == [("sglang.Engine", 3), ("vllm.LLM", 4)]


@pytest.mark.parametrize("text", ["def f(:", "x = (" * 500, "f(\0)", "x = " + "-" * 50_000 + "1"])
def test_what_is_no_python_is_refused(text: str) -> None:
    with pytest.raises(LaunchError, match=r"p\.py.* is not Python that can be parsed"):
        parse_calls(text, "p.py")


def test_what_grows_beyond_reading_is_refused() -> None:
    lines = [f"x{n + 1} = [x{n}, x{n}]" for n in range(60)]

    with pytest.raises(LaunchError, match="too long to be read"):
        parse_calls("\n".join(["x0 = 1", *lines, "f(x=x60)"]), "p.py")


def test_cells_are_python_or_commands_at_their_lines() -> None:
    cells = [
        "%%capture\n%pip install a\nx = 1",
        "%%bash\ncd a\nrun",
        "!one \\\n two\ny = 2",
        "no (",
    ]

    code, shell = program_and_shell(cells)

    assert code.split("\n") == ["", "", "x = 1", "", "", "", "", "", "y = 2", ""]
    assert shell.split("\n") == [
        "",
        "pip install a",
        "",
        "",
        "cd a",
        "run",
        "one \\",
        " two",
        "",
        "",
    ]


def test_only_cells_of_code_are_read() -> None:
    cells = [
        {"cell_type": "markdown", "source": "text"},
        {"cell_type": "code", "source": ["a\n", "b"]},
        {"cell_type": "code", "source": "c"},
    ]

    assert [*cells_of(json.dumps({"cells": cells}), "n.ipynb")] == ["a\nb", "c"]
    for text in ("{", "[]", "{}"):
        with pytest.raises(LaunchError, match=r"n\.ipynb"):
            [*cells_of(text, "n.ipynb")]


def test_what_functions_set_later_is_told_of_them() -> None:
    text = (
        "def base():\n    return Config(steps=2 * 5)\n"
        "def own():\n    config = base()\n    config.part.size = 4\n    return config\n"
    )

    base, own = parse_functions(text, "x.py")

    assert [call.keywords for call in base.calls] == [{"steps": 10}]
    assert (own.line, own.changes) == (3, {"part.size": 4})
    assert [call.name for call in own.calls] == ["base"]


def test_parts_that_are_set_later_belong_to_what_a_call_makes() -> None:
    text = "part = Part(size=1)\npart.size = 8\npart.kind = 'b'\nTrainer(part=part, size=part.size)"

    trainer = parse_calls(text, "x.py")[-1]

    part = trainer.keywords["part"]
    assert isinstance(part, Call)
    assert part.keywords == {"size": 8, "kind": "b"}
    assert trainer.keywords["size"] == 8

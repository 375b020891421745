"""Every path and name of the program that the guides mention exists.

In all pages paths from the root of the repository, names such as ``planner.search`` and methods of
classes of planner are checked. The pages for contributors name nothing else in backticks than
paths, names, columns, keys and options of the program, and a few words of others.
"""

from __future__ import annotations

import ast
import csv
import importlib
import re
import tomllib
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from rows import each
from syntax import nodes

from planner.cli.app import command_line

ROOT = Path(__file__).parents[1]
CONTRIBUTORS = ("CONTRIBUTING.md", "docs/background/design.md")
PAGES = (
    "CONTRIBUTING.md",
    "README.md",
    "docs/index.md",
    *(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/[!g]*/*.md")),
)
FOLDERS = ["benchmarks", "docs", "hardware_specs", "planner", "scripts", "search_spaces", "tests"]
SUFFIXES = (".py", ".csv", ".toml", ".md")
OF_OTHERS = {"config.json", "transformers", "sh", "exit code", "...", "planner.targets"}
"""What pages for contributors name of other programs."""

BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
CALL = re.compile(r"([A-Za-z_][\w.]*)(\(.*\))?")
DEFINITION = re.compile(r"^ *(?:def|class) (\w+)", re.MULTILINE)
IN_DIAGRAM = re.compile(r"(?:^|; )\s*([a-z_/]+): ")


_TOP = {
    *FOLDERS, ".ci", ".github", ".pre-commit-config.yaml", "CITATION.cff", "Dockerfile",
    "pyproject.toml",
}  # fmt: skip


@cache
def paths() -> frozenset[str]:
    """Files and folders of the repository, folders with a slash behind them."""
    tops = [path for path in ROOT.iterdir() if path.name in _TOP]
    found = [
        path for top in tops for path in (top, *top.rglob("*")) if "__pycache__" not in path.parts
    ]
    return frozenset(
        f"{path.relative_to(ROOT)}{'/' if path.is_dir() else ''}"
        for path in [*found, *ROOT.glob("*.md")]
    )


def is_place(word: str, *, anywhere: bool) -> bool:
    """Whether a path exists from the root, or ``anywhere`` below it; <x> stands for any name."""
    pattern = re.sub(r"<\w+>", "*", word)
    patterns = [pattern, f"{pattern}/"]
    if anywhere:
        patterns += [f"*/{one}" for one in patterns]
    if "*" not in word and "<" not in word and not anywhere:
        return not paths().isdisjoint(patterns)
    return any(fnmatch(path, one) for one in patterns for path in paths())


def texts_of(page: str) -> list[str]:
    """The words in backticks of a page, outside of blocks."""
    return SPAN.findall(BLOCK.sub("", (ROOT / page).read_text(encoding="utf-8")))


def is_dotted_name(name: str) -> bool:
    """Whether a dotted name can be imported."""
    module, _, rest = name.partition(".")
    found: Any = importlib.import_module(module)
    for part in rest.split("."):
        if not hasattr(found, part):
            try:
                importlib.import_module(f"{found.__name__}.{part}")
            except (ImportError, AttributeError):
                return part in getattr(found, "__annotations__", {})
        found = getattr(found, part)
    return True


@cache
def names() -> Mapping[str, frozenset[str]]:
    """Names that the package, scripts and tests define, with the attributes of classes."""
    found: dict[str, set[str]] = {}
    for path in (
        *ROOT.glob("scripts/**/*.py"),
        *ROOT.glob("tests/**/test_*.py"),
        ROOT / "tests/rows.py",
    ):
        text = path.read_text(encoding="utf-8")
        found |= {name: set() for name in DEFINITION.findall(text)}
    for tree in nodes().values():
        for node in tree:
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, set()).update(defined_in(node))
            elif isinstance(node, ast.FunctionDef):
                found.setdefault(node.name, set())
                for argument in (*node.args.args, *node.args.kwonlyargs):
                    found.setdefault(argument.arg, set())
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.setdefault(node.id, set())
    return {name: frozenset(attributes) for name, attributes in found.items()}


def defined_in(node: ast.ClassDef) -> Iterator[str]:
    """The methods and attributes of a class."""
    for one in ast.walk(node):
        if isinstance(one, ast.FunctionDef):
            yield one.name
        elif isinstance(one, ast.Name | ast.Attribute) and isinstance(one.ctx, ast.Store):
            yield one.id if isinstance(one, ast.Name) else one.attr


@cache
def words_of_data() -> frozenset[str]:
    """Columns, kinds and roles of the shipped CSV tables, keys of TOML files, options, marks."""
    found: set[str] = set()
    for path in ROOT.glob("planner/**/*.csv"):
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.DictReader(file)
            found |= {*(rows.fieldnames or ())}
            if {"kind", "role"} & found:
                found |= {str(row.get(name)) for row in rows for name in ("kind", "role")}
    for path in (*ROOT.glob("planner/**/*.toml"), *ROOT.glob("hardware_specs/**/*.toml")):
        found |= {*keys_in(tomllib.loads(path.read_text(encoding="utf-8")))}
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found |= {
        re.split(r"\W", mark)[0] for mark in config["tool"]["pytest"]["ini_options"]["markers"]
    }
    return frozenset(found)


def keys_in(value: object) -> Iterator[str]:
    """The keys of a table and of the tables inside it."""
    if isinstance(value, dict):
        yield from value
        value = [*value.values()]
    if isinstance(value, list):
        for inner in value:
            yield from keys_in(inner)


@cache
def options() -> frozenset[str]:
    """The options of all commands."""
    group: Any = command_line()
    commands = [group, *(one.built for one in group.commands.values())]
    commands += [inner for one in commands[1:] for inner in getattr(one, "commands", {}).values()]
    return frozenset(
        name
        for one in commands
        for param in one.params
        for name in (*param.opts, *param.secondary_opts)
    )


def is_ours(span: str) -> bool:
    """Whether a text in backticks of a page for contributors is a place or name that exists."""
    if span in OF_OTHERS or is_place(span, anywhere=True):
        return True
    call = CALL.fullmatch(span)
    if call is None and (" " in span or "=" in span):  # a command
        return True
    if span.startswith("--"):
        return span in options()
    if span.startswith("~"):
        return True
    if span.startswith("["):
        return span.strip("[]").split(".")[0] in words_of_data()
    if span.isupper() and span.startswith("PLANNER_"):
        return any(span in path.read_text(encoding="utf-8") for path in ROOT.glob("scripts/*.py"))
    if call is None:
        return False
    if call[1].startswith("planner."):
        return is_dotted_name(call[1])
    *folders, name = call[1].split(".")
    if folders and name in names().get(folders[-1], ()):
        return True
    if folders and not is_place(f"{'/'.join(folders)}.py", anywhere=True):
        return False
    return name in names() or name in words_of_data() or name in group_names()


def group_names() -> frozenset[str]:
    """The commands."""
    group: Any = command_line()
    return frozenset(group.commands)


@pytest.mark.parametrize("page", PAGES)
def test_places_and_names_of_a_page_exist(page: str) -> None:
    wrong = []
    for span in texts_of(page):
        for word in re.split(r"[\s,;]+", span):
            first = word.partition("/")[0]
            method = re.fullmatch(r"([A-Z]\w+)\.([a-z_]\w*)(\(.*\))?", word)
            path, _, test = word.partition("::")
            if "/" in path and first in FOLDERS and CALL.match(path):
                is_right = is_place(path, anywhere=False) and (not test or test in names())
            elif (
                word.startswith("planner.")
                and not word.endswith(SUFFIXES)
                and word not in OF_OTHERS
            ):
                is_right = is_dotted_name(re.sub(r"\(.*", "", word))
            elif method and names().get(method[1]):
                is_right = method[2] in names()[method[1]]
            else:
                continue
            if not is_right:
                wrong.append(word)
    assert not wrong


@pytest.mark.few(1)
@pytest.mark.parametrize("page", CONTRIBUTORS)
def test_pages_for_contributors_name_what_exists(page: str) -> None:
    assert [span for span in texts_of(page) if not is_ours(span)] == []


def test_the_diagram_of_packages_names_packages_and_modules() -> None:
    diagram = BLOCK.findall((ROOT / "docs/background/design.md").read_text(encoding="utf-8"))[0]
    package, wrong = "", []
    for line in diagram.splitlines()[1:-1]:
        head, rest = line[:17].strip(), line[17:]
        modules = head.split(", ") if head else []
        package = modules[0] if modules else package
        for name in [*modules, *IN_DIAGRAM.findall(rest)]:
            wrong += [name] if not any(map(is_module, (name, f"{package}/{name}"))) else []
    assert not wrong


def is_module(name: str) -> bool:
    """Whether planner has a module or a package of a path."""
    return f"planner/{name}.py" in paths() or f"planner/{name}/" in paths()


@each(
    "span, is_there",
    [
        ("planner/specs/operating_terms.py", True),
        ("planner/specs/sites.py", False),
        ("layers/model.py", True),
        ("planner/launch/options/<target>.csv", True),
        ("planner/launch/option/<target>.csv", False),
        ("Links.unused", True),
        ("Links.used_nowhere", False),
        ("layer_of(model, group)", True),
        ("layer_off(model, group)", False),
        ("planner.Request", True),
        ("planner.Requests", False),
        ("--against", True),
        ("--agains", False),
        ("[rollouts]", True),
        ("[rollout_tables]", False),
    ],
)
def test_what_exists_is_told_from_what_does_not(span: str, is_there: bool) -> None:
    assert is_ours(span) == is_there

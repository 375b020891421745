"""Break lines of the package, one at a time, and say which breaks no test notices.

``python scripts/draw_mutants.py COVERAGE --number 60 --seed 1`` draws mutants over all of
``planner``: a comparison, an operator, a constant, a condition or the order of two arguments is
changed in a copy of the checkout, and the tests that ran the line run there until one fails.

COVERAGE says which tests ran which lines. It is made once, in about three times the time of the
tests:

    pip install coverage pytest-cov
    python -m pytest -n 2 --cov=planner --cov-context=test --cov-report=   # writes .coverage

Lines that only run at import, or in processes that tests start, have no test there: the tests
that name the module run. A survivor may be equivalent to the original: a reader decides.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_TESTS = 60
PATIENCE_S = 300

# Tests of the text of the code notice a break without running it.
_OF_TEXT = ("test_architecture", "test_plain_names", "test_documented", "test_term_positions")
_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
_CALLS = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum",
          "any": "all", "all": "any", "ceil": "floor", "floor": "ceil"}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One changed expression; ``line`` is its first line in the module."""

    path: str
    line: int
    before: str
    after: str
    source: str


def mutated(node: ast.AST) -> ast.AST | None:
    """Return a changed copy of an expression; None if no change is known for its kind."""
    new = copy.deepcopy(node)
    match new:
        case ast.Compare(ops=[operator]) if type(operator) in _COMPARISONS:
            new.ops = [_COMPARISONS[type(operator)]()]
        case ast.BinOp(op=operator) if type(operator) in _OPERATORS and not _is_text(new):
            new.op = _OPERATORS[type(operator)]()
        case ast.BoolOp():
            new.op = ast.Or() if isinstance(new.op, ast.And) else ast.And()
        case ast.UnaryOp(op=ast.Not()):
            return new.operand
        case ast.Constant(value=bool()):
            new.value = not new.value
        case ast.Constant(value=float(number)):
            new.value = number * 1.1
        case ast.Constant(value=int(number)):
            new.value = number + 1
        case ast.IfExp():
            new.body, new.orelse = new.orelse, new.body
        case ast.Call(func=ast.Name(id=name)) if name in _CALLS:
            new.func.id = _CALLS[name]  # type: ignore[attr-defined]
        case ast.Call(func=ast.Attribute(attr=name)) if name in _CALLS:
            new.func.attr = _CALLS[name]  # type: ignore[attr-defined]
        case ast.Call(args=[first, second, *_]) if not isinstance(first, ast.Starred):
            if isinstance(second, ast.Starred) or ast.dump(first) == ast.dump(second):
                return None
            new.args[:2] = second, first
        case _:
            return None
    return new


def _is_text(node: ast.BinOp) -> bool:
    sides = (node.left, node.right)
    return any(isinstance(x, ast.JoinedStr) or _is_string(x) for x in sides)


def _is_string(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def expressions(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the expressions that run: no annotations, types, messages of errors or docstrings."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Raise):
            continue
        if isinstance(node, ast.AnnAssign):
            if node.value:
                yield node.value
                yield from expressions(node.value)
            continue
        if isinstance(node, ast.arg):
            continue
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            node.decorator_list = []
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.expr):
            yield node
        yield from expressions(node)


def mutants_of(path: Path) -> list[Mutant]:
    """Return all mutants of a module."""
    source = path.read_text(encoding="utf-8")
    lines = [line.encode() for line in source.splitlines(keepends=True)]
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    data, found = source.encode(), []
    for node in expressions(ast.parse(source)):
        if (new := mutated(node)) is None or not isinstance(node, ast.expr):
            continue
        if node.end_lineno is None or node.end_col_offset is None:
            continue
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        before, after = data[start:end].decode(), f"({ast.unparse(new)})"
        text = (data[:start] + after.encode() + data[end:]).decode()
        try:
            ast.parse(text)
        except SyntaxError:  # inside an f-string of Python before 3.12
            continue
        found.append(Mutant(str(path.relative_to(ROOT)), node.lineno, before, after, text))
    return found


def tests_of(mutant: Mutant, coverage: Path) -> list[str]:
    """Return the tests that ran the line, those about it first, or those that name the module."""
    with sqlite3.connect(coverage) as data:
        rows = data.execute(
            "select context.context, line_bits.numbits from line_bits "
            "join file on file.id = file_id join context on context.id = context_id "
            "where file.path like ?",
            (f"%/{mutant.path}",),
        ).fetchall()
    byte, bit = divmod(mutant.line, 8)
    tests = {
        context.rpartition("|")[0]
        for context, bits in rows
        if context and len(bits) > byte and bits[byte] >> bit & 1
    }
    tests = {test for test in tests if not any(name in test for name in _OF_TEXT)}
    if tests:
        # Tests that share a file with many others that ran the line are about it.
        files = [test.partition("::")[0] for test in tests]
        ranked = sorted(tests, key=lambda test: (-files.count(test.partition("::")[0]), test))
        random.Random(mutant.line).shuffle(ranked[MOST_TESTS // 2 :])
        return ranked[:MOST_TESTS]
    name = re.compile(rf"\b{Path(mutant.path).stem}\b")
    naming = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if name.search(path.read_text(encoding="utf-8")) and path.stem not in _OF_TEXT
    ]
    return naming[:10]


def is_killed(mutant: Mutant, tests: list[str], folder: Path) -> bool:
    """Run tests on a copy of the checkout with the mutant until one fails; restore the copy."""
    path = folder / mutant.path
    original = path.read_text(encoding="utf-8")
    path.write_text(mutant.source, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider"]
    try:
        done = subprocess.run(
            [*command, *tests],
            cwd=folder,
            env={"PYTHONPATH": str(folder), "PATH": os.environ["PATH"]},
            capture_output=True,
            timeout=PATIENCE_S,
        )
    except subprocess.TimeoutExpired:
        return True
    finally:
        path.write_text(original, encoding="utf-8")
    return done.returncode not in (0, 5)


def main() -> None:
    """Draw mutants, print each with its verdict, and the share that tests noticed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("coverage", type=Path)
    parser.add_argument("--number", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()

    paths = sorted((ROOT / "planner").rglob("*.py"))
    drawn = random.Random(options.seed)
    weights = [len(path.read_text(encoding="utf-8")) for path in paths]
    mutants: list[Mutant] = []
    while len(mutants) < options.number:
        (path,) = drawn.choices(paths, weights)
        if candidates := mutants_of(path):
            mutants.append(drawn.choice(candidates))

    with tempfile.TemporaryDirectory() as temporary:
        folders = [Path(temporary) / str(number) for number in range(options.workers)]
        for folder in folders:
            shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".git", "build", "*.pyc"))
        free = [*folders]

        def judge(mutant: Mutant) -> str:
            tests = tests_of(mutant, options.coverage)
            if not tests:
                return "no test"
            folder = free.pop()
            began = time.monotonic()
            try:
                killed = is_killed(mutant, tests, folder)
            finally:
                free.append(folder)
            seconds = time.monotonic() - began
            return f"{'killed' if killed else 'LIVES'} ({len(tests)} tests, {seconds:.0f} s)"

        with ThreadPoolExecutor(options.workers) as pool:
            verdicts = []
            for mutant, verdict in zip(mutants, pool.map(judge, mutants), strict=True):
                verdicts.append(verdict.startswith("killed"))
                print(f"{verdict}: {mutant.path}:{mutant.line}: {mutant.before} -> {mutant.after}")
                sys.stdout.flush()
    print(f"{sum(verdicts)} of {len(verdicts)} killed ({sum(verdicts) / len(verdicts):.0%})")


if __name__ == "__main__":
    main()

"""Break lines of the package, one at a time, and say which breaks no test notices.

``python scripts/draw_mutants.py [COVERAGE] --number 60 --seed 1`` draws mutants over all of
``planner``: a comparison, an operator, a constant, a condition or the order of two arguments is
changed in a copy of the checkout, and the tests that ran the line run there until one fails.

COVERAGE says which tests ran which lines. It is made once, in about three times the time of the
tests. Without it the test files run that name the changed function, its callers or its module:
a survivor may then be noticed by other tests.

    pip install coverage pytest-cov
    python -m pytest -n 2 --cov=planner --cov-context=test --cov-report=   # writes .coverage

Lines that only run at import, or in processes that tests start, have no test there: the tests
that name the module run. A survivor may be equivalent to the original: a reader decides. A test
that fails without a mutant counts as noticing it: draw where all tests pass.
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
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_TESTS = 60
MOST_FILES = 8  # where no coverage says which tests ran the line
PATIENCE_S = 600

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


def mutant_of(path: Path, drawn: random.Random) -> Mutant | None:
    """Return a drawn mutant of a module; None if it has no expression that runs."""
    source = path.read_text(encoding="utf-8")
    data = source.encode()
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    nodes = [node for node in expressions(ast.parse(source)) if isinstance(node, ast.expr)]
    drawn.shuffle(nodes)
    for node in nodes:
        if (new := mutated(node)) is None:
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
        return Mutant(str(path.relative_to(ROOT)), node.lineno, before, after, text)
    return None


def tests_of(mutant: Mutant, coverage: Path | None) -> list[str]:
    """Return the tests that ran the line, those about it first, or the files that name it."""
    if coverage is None:
        return files_naming(mutant)
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
    return files_naming(mutant)


@cache
def names_in(folder: str) -> dict[str, Counter[str]]:
    """Return how often each file of a folder has each word."""
    texts = {path: path.read_text(encoding="utf-8") for path in (ROOT / folder).rglob("*.py")}
    return {
        str(path.relative_to(ROOT)): Counter(re.findall(r"\w+", text))
        for path, text in texts.items()
        if path.stem not in _OF_TEXT
    }


@cache
def functions() -> list[tuple[str, set[str]]]:
    """Return the functions of the package, each with the names in it."""
    return [
        (node.name, set(re.findall(r"\w+", ast.unparse(node))))
        for path in (ROOT / "planner").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
    ]


def files_naming(mutant: Mutant) -> list[str]:
    """Return test files that name the function of a mutant, its callers, theirs or the module."""
    tree = ast.parse((ROOT / mutant.path).read_text(encoding="utf-8"))
    around = [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and node.lineno <= mutant.line <= (node.end_lineno or node.lineno)
    ]
    names, weight = {name for name in around if not name.startswith("__")}, 1.0
    scores: Counter[str] = Counter()
    tests = {path: words for path, words in names_in("tests").items() if "test_" in path}
    for _ in range(3):
        for name in names:
            having = [path for path, words in tests.items() if name in words]
            for path in having:
                scores[path] += weight / len(having)
        names, weight = {x for x, inside in functions() if not names.isdisjoint(inside)}, weight / 4
    module, folders = Path(mutant.path).stem, Path(mutant.path).parts[1:-1]
    for path, words in tests.items():
        scores[path] += 0.5 * (module in words) + (f"test_{module}." in path)
        scores[path] += 0.02 * len({*folders} & {*Path(path).parts})
    return [path for path, _ in scores.most_common(MOST_FILES)]


def failed_test(mutant: Mutant, tests: list[str], folder: Path) -> str:
    """Return the first test that fails on a copy of the checkout with the mutant; or nothing."""
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
            text=True,
            timeout=PATIENCE_S,
        )
    except subprocess.TimeoutExpired:
        return f"none in {PATIENCE_S} s"
    finally:
        path.write_text(original, encoding="utf-8")
    if done.returncode in (0, 5):
        return ""
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return failed[1] if failed else f"status {done.returncode}"


def main() -> None:
    """Draw mutants, print each with its verdict, and the share that tests noticed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("coverage", type=Path, nargs="?")
    parser.add_argument("--number", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--packages", nargs="*", default=[""], help="such as formulas estimators")
    options = parser.parse_args()

    packages = [ROOT / "planner" / name for name in options.packages]
    paths = sorted(path for package in packages for path in package.rglob("*.py"))
    drawn = random.Random(options.seed)
    weights = [len(path.read_text(encoding="utf-8")) for path in paths]
    mutants: list[Mutant] = []
    while len(mutants) < options.number:
        (path,) = drawn.choices(paths, weights)
        if mutant := mutant_of(path, drawn):
            mutants.append(mutant)

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
                failed = failed_test(mutant, tests, folder)
            finally:
                free.append(folder)
            seconds = time.monotonic() - began
            verdict = f"killed by {failed}" if failed else "LIVES"
            return f"{verdict} ({len(tests)} tests, {seconds:.0f} s)"

        with ThreadPoolExecutor(options.workers) as pool:
            verdicts = []
            for mutant, verdict in zip(mutants, pool.map(judge, mutants), strict=True):
                verdicts.append(verdict.startswith("killed"))
                print(f"{verdict}: {mutant.path}:{mutant.line}: {mutant.before} -> {mutant.after}")
                sys.stdout.flush()
    print(f"{sum(verdicts)} of {len(verdicts)} killed ({sum(verdicts) / len(verdicts):.0%})")


if __name__ == "__main__":
    main()

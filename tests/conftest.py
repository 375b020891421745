from __future__ import annotations

import gc
import os
import pickle
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from commands import Command, Ran
from draws import IS_THOROUGH, examples
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

from planner.__main__ import _OBJECTS_BETWEEN_COLLECTIONS, run
from planner.base import worker_processes
from planner.validation.accuracy import ComparedRun

GIVEN_SEED = os.environ.get("PLANNER_SEED")
SEED = int(GIVEN_SEED or "1")
"""What tests draw with: the same on every machine, unless ``PLANNER_SEED`` draws others."""

if "PYTEST_XDIST_WORKER" not in os.environ:
    # What planner keeps between runs is the user's own; workers take it over from here.
    _CACHES = tempfile.TemporaryDirectory(prefix="planner-caches-")
    os.environ["XDG_CACHE_HOME"] = _CACHES.name

# How long an example takes says how busy the machine is.
settings.register_profile(
    "drawn",
    deadline=None,
    derandomize=GIVEN_SEED is None and not IS_THOROUGH,
    max_examples=examples(100, 25),
)
settings.load_profile("drawn")


# Other tests run on the other cores; where several processes matter, a test says how many.
worker_processes.num_cores = lambda: 1


# These take the predictions of all published runs, which a process makes once.
_OF_PUBLISHED_RUNS = (
    "estimators/test_medians.py",
    "scripts/test_accuracy_targets.py",
    "scripts/test_make_accuracy.py",
    "scripts/test_make_causes.py",
    "scripts/test_make_peers.py",
    "validation/test_coverage.py",
    "validation/test_inference_shipped.py",
    "validation/test_rl_runs.py",
    "validation/test_shipped_runs.py",
)
# These share a server, answers and a browser, which a process starts once.
_OF_PAGES = tuple(
    f"{path.parent.name}/{path.name}"
    for folder in ("pages", "ui")
    for path in Path(__file__).parent.joinpath(folder).glob("test_*.py")
)
# These read the syntax of all modules, which a process parses once.
_OF_SYNTAX = (
    "report/test_counts.py",
    "tests/test_architecture.py",
    "tests/test_named_places.py",
    "tests/test_plain_language.py",
    "tests/test_plain_names.py",
    "tests/test_term_positions.py",
    "tests/test_terms.py",
    "tests/test_words.py",
)
# These come first, else one of them ends alone.
_LONG = (*_OF_PUBLISHED_RUNS, *_OF_PAGES, "test_readme.py", "sweeps/test_kills.py")


class _ByFile(LoadFileScheduling):
    """A worker takes whole files, and all files of published runs, of pages, or of syntax."""

    def _split_scope(self, nodeid: str) -> str:
        name = nodeid.partition("::")[0]
        if name.endswith(_OF_PAGES):
            return "pages"
        if name.endswith(_OF_SYNTAX):
            return "syntax"
        return "published runs" if name.endswith(_OF_PUBLISHED_RUNS) else name


def pytest_xdist_auto_num_workers() -> int:
    """One more than cores: processes, servers and browsers are waited for."""
    return (os.cpu_count() or 1) + 1


def pytest_xdist_make_scheduler(config: Any, log: Any) -> Any:
    return _ByFile(config, log)


# Looking for cycles among thousands of tests and modules that stay takes a tenth of all.
gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)


def pytest_collection_finish() -> None:
    gc.freeze()


def pytest_unconfigure() -> None:
    """pytest looks five times for what only a cycle holds: nothing is left to be looked at."""
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[Any]) -> None:
    for cases in _of_few(items).values():
        ((number,),) = (mark.args for mark in cases[0].iter_markers("few"))  # one alone
        draw = random.Random(f"{SEED} {cases[0].nodeid}")
        for item in draw.sample(cases, max(len(cases) - number, 0)):
            item.add_marker(pytest.mark.drawn)
    items.sort(key=lambda item: not str(item.path).endswith(_LONG))


_LEFT_OUT = ("drawn", "slow")


def _of_few(items: list[Any]) -> dict[tuple[Path, str], list[Any]]:
    """The cases of each test that the gate draws some of."""
    found: dict[tuple[Path, str], list[Any]] = {}
    for item in items:
        if item.get_closest_marker("few") and not any(map(item.get_closest_marker, _LEFT_OUT)):
            found.setdefault((item.path, item.originalname), []).append(item)
    return found


def pytest_report_header() -> str:
    return f"PLANNER_SEED={SEED}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: Any) -> Iterator[None]:
    """A test that draws says how to draw the same again."""
    report = yield
    if report.failed and "seed" in item.fixturenames:
        line = f"PLANNER_SEED={SEED} python -m pytest -n 0 -m '' {item.nodeid!r}"
        report.sections.append(("to repeat", line))
    return report


@pytest.fixture(scope="session")
def seed() -> int:
    """What a test draws with."""
    return SEED


@pytest.fixture(scope="session")
def shipped_tables(tmp_path_factory: pytest.TempPathFactory) -> Sequence[Sequence[ComparedRun]]:
    """The published runs of training, static batches and serving with their predictions.

    Predictions take 20 s: the first worker that has them leaves them to the others.
    """
    import make_accuracy

    folder = tmp_path_factory.getbasetemp()
    shared = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "predictions"
    if shared.exists():
        left = iter(pickle.loads(shared.read_bytes()))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(make_accuracy, "predict", lambda runs, library: next(left))
            return make_accuracy.shipped_rows()
    made: list[Any] = []
    predict = make_accuracy.predict
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(make_accuracy, "predict", lambda *a: made.append(predict(*a)) or made[-1])
        tables = make_accuracy.shipped_rows()
    unfinished = folder / "unfinished"
    unfinished.write_bytes(pickle.dumps(made))
    unfinished.replace(shared)
    return tables


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A headless Chromium; tests that ask for it are skipped where there is none."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    if found is None:
        pytest.skip("there is no chromium here (apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    flags = (
        "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-component-update "
        "--disable-background-networking --disable-sync"
    )
    with sync_playwright() as tool:
        browser = tool.chromium.launch(executable_path=found, args=flags.split())
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium: Any) -> Iterator[Callable[..., Any]]:
    """Opens an address; at the end nothing was logged, and nothing asked of another server."""
    contexts: list[Any] = []
    seen: list[str] = []

    def open_page(address: str, width: int = 1100, scheme: str = "light") -> Any:
        context = chromium.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme
        )
        context.set_default_timeout(120_000)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: seen.append(message.text))
        page.on("pageerror", lambda error: seen.append(str(error)))
        origin = address if address.startswith("file:") else "/".join(address.split("/")[:3])
        mine = (origin, "data:", "blob:")
        page.on("request", lambda r: None if r.url.startswith(mine) else seen.append(r.url))
        page.goto(address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert seen == []


@pytest.fixture
def planner(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run ``planner`` in this process, 80 columns wide, its output a pipe."""
    monkeypatch.setenv("COLUMNS", "80")

    def command(*arguments: str | Path) -> Ran:
        capsys.readouterr()
        exit_code = run([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        return Ran(exit_code, printed.out, printed.err)

    return command

"""Launch targets of other packages: that of docs/how-to/launch_targets.md, and broken ones."""

from __future__ import annotations

import re
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from commands import Command

from planner.launch import target_plugins, targets
from planner.launch.option_table import OptionTable, _shipped_tools

PAGE = (
    Path(__file__)
    .parents[2]
    .joinpath("docs", "how-to", "launch_targets.md")
    .read_text(encoding="utf-8")
)
PACKAGE = "planner_tinyserve"
FILES = {
    "pyproject.toml": ("toml", 0),
    f"{PACKAGE}/target.csv": ("text", 0),
    f"{PACKAGE}/options.csv": ("text", 1),
    f"{PACKAGE}/__init__.py": ("py", 0),
    "run.sh": ("bash", 0),
}
CACHES = (
    target_plugins.target_plugins,
    targets.targets,
    targets.readers,
    targets._plugin_targets,
    OptionTable.load,
    _shipped_tools,
)
Install = Callable[..., None]


def block(language: str, number: int) -> str:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)[number]


def forget() -> None:
    for cached in CACHES:
        cached.cache_clear()  # type: ignore[attr-defined]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs the package of the page; with other texts of files, or other entry points."""

    def install_package(entries: str = "", **changed: str) -> None:
        for name, place in FILES.items():
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(changed.get(path.stem.strip("_"), block(*place)), encoding="utf-8")
        project = tomllib.loads(block("toml", 0))["project"]
        points = project["entry-points"]["planner.targets"]
        info = tmp_path / f"{PACKAGE}-{project['version']}.dist-info"
        info.mkdir()
        info.joinpath("METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
        )
        lines = entries or "\n".join(f"{name} = {module}" for name, module in points.items())
        info.joinpath("entry_points.txt").write_text(f"[planner.targets]\n{lines}\n")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.chdir(tmp_path)
        forget()

    yield install_package
    sys.modules.pop(PACKAGE, None)
    monkeypatch.undo()
    forget()


@pytest.mark.parametrize("number", [0, 1])
def test_the_commands_of_the_page_print_what_it_shows(
    install: Install, planner: Command, number: int, tmp_path: Path
) -> None:
    install()
    command, *shown = block("text", 2 + number).splitlines()

    ran = planner(*shlex.split(command.removeprefix("$ planner ")))

    assert ran.exit_code == 0, ran.err
    assert {*shown} - {"..."} <= {*ran.out.splitlines()}
    if (tmp_path / "launch").exists():
        server = (tmp_path / "launch" / "serve.sh").read_text(encoding="utf-8")
        assert "  tinyserve serve" in server
        assert "--tp 2" in server
        assert planner("estimate", "--from", tmp_path / "launch").exit_code == 0


def test_tables_alone_make_an_engine(install: Install) -> None:
    install(init="")

    assert targets.target_of("tinyserve").can_write
    assert list(targets.targets())[-1] == "tinyserve"


def test_a_target_without_words_that_start_it_is_read_alone(install: Install) -> None:
    install(target=block("text", 0).replace(",tinyserve serve {model}", ","))

    assert "tinyserve" in targets.readers()
    assert "tinyserve" not in targets.targets()


BROKEN = [
    ({"entries": f"vllm = {PACKAGE}"}, "vllm", "planner has a target of this name"),
    ({"entries": f"trtllm = {PACKAGE}"}, "trtllm", "planner has a target of this name"),
    ({"entries": "tinyserve = planner_nothing"}, "tinyserve", "there is no module planner_nothing"),
    ({"entries": f"other = {PACKAGE}"}, "other", "one row, with the name other"),
    ({"init": "1 / 0"}, "tinyserve", "ZeroDivisionError: division by zero"),
    ({"init": "TARGET = 1"}, "tinyserve", "not a LaunchTarget with the name tinyserve"),
    ({"target": "name,color\ntinyserve,red\n"}, "tinyserve", "unknown columns color"),
    ({"target": "name,aliases\ntinyserve,trtllm\n"}, "tinyserve", "the alias trtllm"),
    (
        {"options": "parameter,role\nmodel,is it\n"},
        "tinyserve",
        "'is it' is not a valid OptionRole",
    ),
]


@pytest.mark.parametrize(("changed", "name", "reason"), BROKEN, ids=lambda value: str(value)[:40])
def test_a_broken_target_is_left_out_with_a_warning(
    install: Install, changed: dict[str, str], name: str, reason: str
) -> None:
    shipped = {*targets.readers()}
    install(**changed)

    with pytest.warns(UserWarning, match=f"{name} of planner-tinyserve is left out: .*{reason}"):
        assert {*targets.readers()} == shipped


def test_of_two_packages_with_one_name_the_first_stays(install: Install) -> None:
    install(entries=f"tinyserve = {PACKAGE}\ntinyserve = planner_other")

    with pytest.warns(UserWarning, match="another package has a target of this name"):
        assert "tinyserve" in targets.readers()

"""Another distribution with a package or a command of our name is noticed, at little cost."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from rows import each

import llm_gpu_planner
import planner.__main__ as planner_main
from planner.base import install_conflicts
from planner.base.install_conflicts import (
    check_conflicts,
    conflicting_distributions,
    version_line,
)
from planner.base.version import DISTRIBUTION, __version__
from planner.errors import InstallError

ROOT = Path(__file__).parents[1]
LONG_AGO = 1_000_000_000


def site_of(folder: Path, name: str, **files: str) -> Path:
    """A folder of packages with a distribution of this name, which changed long ago."""
    metadata = folder / "site" / f"{name}.dist-info"
    metadata.mkdir(parents=True)
    metadata.joinpath("METADATA").write_text("Metadata-Version: 2.4\n")
    for file, text in files.items():
        metadata.joinpath(file if file == "RECORD" else f"{file}.txt").write_text(text)
    os.utime(metadata.parent, (LONG_AGO, LONG_AGO))
    return metadata.parent


def found(site: Path, cache: Path) -> list[str]:
    return [name for name, _ in conflicting_distributions([str(site)], str(cache))]


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("planner-0.5.1", {}),
        ("Planner-0.5.1", {}),
        ("day_tools-2.0", {"RECORD": "day/a.py,,\nplanner/__init__.py,sha256=1,2\n"}),
        ("day_tools-2.0", {"RECORD": "planner.py,sha256=1,2\n"}),
        ("day_tools-2.0", {"top_level": "day\nplanner\n"}),
        ("day_tools-2.0", {"entry_points": "[console_scripts]\nday = a:b\nplanner = day.cli:main"}),
    ],
)
def test_a_distribution_with_our_package_or_command_is_named(
    name: str, files: dict[str, str], tmp_path: Path
) -> None:
    expected = "planner 0.5.1" if "lanner" in name else "day-tools 2.0"
    assert found(site_of(tmp_path, name, **files), tmp_path / "kept") == [expected]


@pytest.mark.parametrize(
    ("name", "files"),
    [
        (f"{DISTRIBUTION.replace('-', '_')}-0.1.0", {"RECORD": "planner/__init__.py,,\n"}),
        ("day_planner-1.0", {"RECORD": "day_planner/a.py,,\nday/planner/a.py,,\n"}),
        ("day-1.0", {"entry_points": "[day.plugins]\nplanner = day.plugin\n"}),
        ("day-1.0", {"entry_points": "[console_scripts]\nday-planner = planner:main\n"}),
    ],
)
def test_others_are_not(name: str, files: dict[str, str], tmp_path: Path) -> None:
    assert found(site_of(tmp_path, name, **files), tmp_path / "kept") == []


def test_it_is_found_out_once_until_the_folder_changes(tmp_path: Path) -> None:
    site, cache = site_of(tmp_path, "planner-0.5.1"), tmp_path / "folder" / "kept"
    assert found(site, cache) == ["planner 0.5.1"]
    shutil.rmtree(site / "planner-0.5.1.dist-info")
    os.utime(site, (LONG_AGO, LONG_AGO))
    assert found(site, cache) == ["planner 0.5.1"], "looked up again"
    os.utime(site, (LONG_AGO + 1, LONG_AGO + 1))
    assert found(site, cache) == []


def test_what_a_killed_command_left_is_removed(tmp_path: Path) -> None:
    site, cache = site_of(tmp_path, "planner-0.5.1"), tmp_path / "folder" / "kept"
    cache.parent.mkdir()
    cache.with_name("kept.123").write_text("half")
    found(site, cache)
    assert [path.name for path in cache.parent.iterdir()] == ["kept"]


def test_a_folder_that_just_changed_is_looked_at_again(tmp_path: Path) -> None:
    site, cache = site_of(tmp_path, "planner-0.5.1"), tmp_path / "kept"
    soon = time.time() + 3600  # so that no machine is slow enough for it to be long ago
    os.utime(site, (soon, soon))
    assert found(site, cache) == ["planner 0.5.1"]
    shutil.rmtree(site / "planner-0.5.1.dist-info")
    os.utime(site, (soon, soon))
    assert found(site, cache) == []


def test_nothing_kept_and_nothing_there_are_no_faults(tmp_path: Path) -> None:
    tmp_path.joinpath("file").touch()
    site = site_of(tmp_path, "planner-0.5.1")
    folders = [str(tmp_path / "missing"), str(tmp_path / "file"), str(site)]
    cache = str(tmp_path / "file" / "kept")  # cannot be written
    assert conflicting_distributions(folders, cache) == [("planner 0.5.1", str(site))]


def test_a_command_reads_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, read = str(tmp_path / "kept"), list[str]()

    def noted(function: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
        return lambda path: read.append(path) or function(path)

    for number in range(3):
        site = site_of(tmp_path, f"package{number}-1.0", RECORD="package/a.py,,\n")
    read_lines, listdir = install_conflicts.read_lines, os.listdir
    monkeypatch.setattr(
        install_conflicts, "read_lines", lambda path: read.append(path) or read_lines(path)
    )
    monkeypatch.setattr(os, "listdir", lambda path: read.append(path) or listdir(path))
    conflicting_distributions([str(site)], cache)
    assert len(read) > 3
    del read[:]
    conflicting_distributions([str(site)], cache)
    assert read == [cache]


@pytest.fixture
def with_another(tmp_path: Path) -> dict[str, str]:
    """An environment in which a day planner is installed beside ours."""
    site = site_of(tmp_path, "planner-0.5.1", RECORD="planner/__init__.py,,\n")
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    return {**os.environ, **cache, "PYTHONPATH": os.pathsep.join((str(ROOT), str(site)))}


def run(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "planner", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=True)


@pytest.mark.slow
def test_a_command_warns_and_runs(with_another: dict[str, str], tmp_path: Path) -> None:
    for _ in range(2):  # found out, and kept
        ran = run(with_another, "specs", "list")
        assert "gpus" in ran.stdout
        assert f"Warning: planner 0.5.1 in {tmp_path / 'site'}" in ran.stderr
        assert f"pip uninstall planner {DISTRIBUTION}" in ran.stderr


Place = Callable[..., Path]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Puts another distribution on the import path; with ``among_ours`` into our folder."""

    def put(name: str, *, among_ours: bool = False, **files: str) -> Path:
        site = site_of(tmp_path, name, **files)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.setattr(sys, "path", [sys.path[0], str(site)])
        if among_ours:
            monkeypatch.setattr(install_conflicts, "_FOLDER", str(site))
        return site

    return put


def test_a_shell_that_completes_is_told_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place("planner-0.5.1")
    check_conflicts()
    assert "planner 0.5.1" in capsys.readouterr().err
    monkeypatch.setenv("_PLANNER_COMPLETE", "complete_bash")
    check_conflicts()
    assert capsys.readouterr().err == ""


def test_files_of_another_among_ours_are_refused(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    site = place("planner-0.5.1", among_ours=True, RECORD="planner/__init__.py,,\n")
    assert planner_main.run(["--version"], check_conflicts) == InstallError.exit_code
    ran = capsys.readouterr()
    assert ran.out == ""
    assert f"planner 0.5.1 has a package planner in {site}, too" in ran.err
    assert f"pip uninstall planner {DISTRIBUTION}" in ran.err
    assert f"pipx install {DISTRIBUTION}" in ran.err


def test_a_command_of_our_name_mixes_no_files(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place("day-1.0", among_ours=True, entry_points="[console_scripts]\nplanner = day:main")
    check_conflicts()
    assert "Warning: day 1.0" in capsys.readouterr().err


OTHER = "print('the other ran')\n"


@each(
    ("files", "path", "reason"),
    [
        ({"planner/__init__.py": OTHER}, "", "Another distribution has overwritten"),
        ({"before/planner.py": OTHER}, "before", "planner.py comes before"),
        ({"before/planner/__init__.py": OTHER}, "before", "__init__.py comes before"),
        ({}, "", "is missing"),
    ],
)
def test_nothing_of_another_package_runs(files, path, reason, tmp_path_factory):
    folder = tmp_path_factory.mktemp("installed").resolve()
    shutil.copy(ROOT / "llm_gpu_planner.py", folder)
    for name, text in files.items():
        folder.joinpath(name).parent.mkdir(parents=True, exist_ok=True)
        folder.joinpath(name).write_text(text)
    paths = os.pathsep.join(str(part) for part in ([folder / path] if path else []) + [folder])
    command = [sys.executable, "-S", "-P", "-m", "llm_gpu_planner", "--version"]
    environment = {**os.environ, "PYTHONPATH": paths}
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert (ran.returncode, ran.stdout) == (InstallError.exit_code, "")
    assert reason in ran.stderr
    assert f"pipx install {DISTRIBUTION}" in ran.stderr


def test_the_command_starts_our_package() -> None:
    assert llm_gpu_planner.wrong_package() == ""
    assert (
        DISTRIBUTION,
        InstallError.exit_code,
    ) == (llm_gpu_planner.DISTRIBUTION, llm_gpu_planner.WRONG_PACKAGE)


def test_the_version_names_distribution_and_folder(with_another: dict[str, str]) -> None:
    line = run(with_another, "--version").stdout.strip()
    assert line == version_line()
    assert line == f"planner {__version__} (distribution {DISTRIBUTION}, in {ROOT / 'planner'})"


def test_the_name_is_that_of_the_distribution() -> None:
    project = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == DISTRIBUTION
    assert project["scripts"] == {"planner": "llm_gpu_planner:main"}


def test_messages_install_the_distribution_by_its_name() -> None:
    code = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("planner/**/*.py"))
    assert "install 'planner" not in code
    assert f"install '{DISTRIBUTION}[hub]'" in code

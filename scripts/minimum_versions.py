"""Install the oldest versions that `pyproject.toml` allows, and see that planner works with them.

A fresh environment gets exactly the lower bounds of the dependencies and of every extra that users
install; what these need themselves is the newest there is. Then the command of the README is run,
the help of every command, and something of each extra. What worked is written into
`docs/reference/versions.md`; tests compare it with `pyproject.toml`.

    python3.11 scripts/minimum_versions.py     # for the Python that runs it

Where the lower bounds have no wheels for a Python, its newest versions are tried, and the table
says so; `--newest` asks for that.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import urllib.request
import venv
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "versions.md"
OF_DEVELOPERS = ("test", "docs", "benchmark", "release")
"""Extras whose versions users do not meet."""
MINIMA, NEWEST = "lower bounds", "newest"
_TABLE = re.compile(r"(?<=\n\| Python \| tried with \|\n\|---\|---\|\n)(?:\|.*\n)*")
_README = "search --model llama-65b --gpus 2048"
_SWEEP = "sweep --model llama-2-7b --gpu a100,h100 --gpus 8 --tokens 1B --quiet --output"
_ON_DASK = """\
import shlex, sys
from distributed import LocalCluster
from planner.__main__ import run
if __name__ == "__main__":
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster:
        sys.exit(run([*shlex.split(sys.argv[1]), "--dask", cluster.scheduler_address]))
"""
_ON_MCP = """\
import asyncio, sys
from mcp import Client, StdioServerParameters
async def ask():
    words = ["-m", "planner", "mcp", "--workers", "1"]
    async with Client(StdioServerParameters(command=sys.executable, args=words)) as client:
        print(len((await client.list_tools()).tools))
        print((await client.call_tool("names", {"kind": "gpus", "like": "h100"})).content[0].text)
asyncio.run(ask())
"""


def bounds() -> dict[str, str]:
    """The lower bound of every package that users install, by name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    chosen = [project["optional-dependencies"][extra] for extra in extras()]
    lines = chain(project["dependencies"], *chosen)
    named = sorted({tuple(line.split(">=")) for line in lines})
    found = dict(named)
    if len(found) < len(named):
        raise SystemExit("pyproject.toml: a package has two lower bounds; give it one.")
    return found


def extras() -> list[str]:
    """The extras that users install."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [name for name in project["optional-dependencies"] if name not in OF_DEVELOPERS]


class Environment:
    """A fresh environment that has planner and every extra of users."""

    def __init__(self, folder: Path, *, newest: bool) -> None:
        """Install it; `subprocess.CalledProcessError` where that is not possible."""
        self.folder = folder
        venv.create(folder / "venv", with_pip=True)
        self.python = str(folder / "venv" / "bin" / "python")
        constraints = folder / "constraints.txt"
        lines = [] if newest else [f"{name}=={bound}\n" for name, bound in bounds().items()]
        constraints.write_text("".join(lines), encoding="utf-8")
        pip = [self.python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        wanted = f"{ROOT}[{','.join(extras())}]"
        # Compilers are no part of what is tried: without a wheel there is no answer.
        subprocess.run([*pip, "--only-binary=:all:", "-c", str(constraints), wanted], check=True)

    def planner(self, words: str, *, exit_code: int = 0) -> str:
        """What a command prints; it ends the program where the exit code is another one."""
        return self.ran(["-m", "planner", *words.split()], exit_code)

    def ran(self, arguments: Sequence[str], exit_code: int = 0) -> str:
        """The same of a program in Python."""
        done = subprocess.run(
            [self.python, *arguments],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": "", "HF_HUB_OFFLINE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != exit_code:
            raise SystemExit(f"{arguments}: exit code {done.returncode}\n{done.stderr}")
        return done.stdout + done.stderr


def commands() -> list[str]:
    """The commands of the reference."""
    text = (ROOT / "docs" / "reference" / "reference.md").read_text(encoding="utf-8")
    names = re.findall(r"^### planner ?(.*)$", text, flags=re.MULTILINE)
    return [name.replace("_", "-") for name in names]


def try_all(here: Environment) -> None:
    """The command of the README, every command's help, something of each extra."""
    assert "Recommended" in here.planner(_README)
    for command in commands():
        assert "--help" in here.planner(f"{command} --help"), command
    tried = {
        "hub": try_hub,
        "calibration": try_calibration,
        "parquet": try_parquet,
        "dask": try_dask,
        "plot": try_plot,
        "report": try_report,
        "ui": try_ui,
        "mcp": try_mcp,
    }
    for extra in extras():
        tried[extra](here)
        print(f"  {extra}: works")


def try_hub(here: Environment) -> None:
    """Without a network it says that there is none, in the words of the library's own error."""
    assert "is not reachable" in here.planner("search --model nobody/none --gpus 8", exit_code=2)


def try_calibration(here: Environment) -> None:
    """A profile is fitted to the example of the table to fill in, which then is read."""
    here.planner("validate --template training --output runs.csv")
    here.planner("calibrate runs.csv --output mine.toml")
    here.planner("validate runs.csv --profile mine.toml")


def try_parquet(here: Environment) -> None:
    """A sweep writes its scenarios in both formats."""
    here.planner(f"{_SWEEP} results")
    assert here.ran(
        ["-c", "import pandas; print(len(pandas.read_parquet('results/front.parquet')))"]
    ).strip()


def try_dask(here: Environment) -> None:
    """The same sweep on a cluster of one worker."""
    (here.folder / "on_dask.py").write_text(_ON_DASK, encoding="utf-8")
    here.ran(["on_dask.py", f"{_SWEEP} on_dask"])
    one, other = (here.folder / name / "scenarios.csv" for name in ("results", "on_dask"))
    assert one.read_bytes() == other.read_bytes()


def try_plot(here: Environment) -> None:
    """A picture of a search."""
    here.planner(f"{_README} --quiet --plot front.svg")
    assert (here.folder / "front.svg").stat().st_size


def try_report(here: Environment) -> None:
    """A page of a search."""
    here.planner(f"{_README} --quiet --json found.json")
    here.planner("report found.json --output found.html")
    assert "<html" in (here.folder / "found.html").read_text(encoding="utf-8")


def try_ui(here: Environment) -> None:
    """The server's first page."""
    arguments = [here.python, "-m", "planner", "ui", "--port", "0", "--workers", "1"]
    with subprocess.Popen(
        arguments, cwd=here.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as server:
        assert server.stdout is not None
        try:
            for line in server.stdout:
                if found := re.search(r"http://[\d.:]+/", line):
                    with urllib.request.urlopen(found[0]) as page:
                        assert b"<form" in page.read()
                    return
            raise SystemExit("planner ui: no address was printed")
        finally:
            server.terminate()


def try_mcp(here: Environment) -> None:
    """The tools of the server, and the answer of one of them, by a client of the same library."""
    (here.folder / "on_mcp.py").write_text(_ON_MCP, encoding="utf-8")
    assert "h100-sxm-80gb" in here.ran(["on_mcp.py"])


def recorded(version: str, what: str) -> str:
    """The page with what this Python was tried with."""
    text = PAGE.read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (3\.\d+) \| (.*) \|$", text, flags=re.MULTILINE))
    pins = ", ".join(f"{name} {bound}" for name, bound in bounds().items())
    rows[version] = f"{MINIMA}: {pins}" if what == MINIMA else what
    order = sorted(rows, key=lambda name: int(name.split(".")[1]))
    return _TABLE.sub("".join(f"| {name} | {rows[name]} |\n" for name in order), text)


def main() -> None:
    """Try this Python, and write down what worked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--newest", action="store_true", help="the newest versions")
    what = NEWEST if parser.parse_args().newest else MINIMA
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            here = Environment(folder, newest=what == NEWEST)
        except subprocess.CalledProcessError:
            if what == NEWEST:
                raise
            print("The lower bounds cannot be installed here: the newest versions are tried.")
            what = NEWEST
            here = Environment(folder, newest=True)
        try_all(here)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    PAGE.write_text(recorded(version, what), encoding="utf-8")
    print(f"Python {version}, {what}: works")


if __name__ == "__main__":
    main()

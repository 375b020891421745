"""Make docs/procurement.md: a sweep over five models, twelve GPUs, six counts and three contracts.

Run it after a change of predictions, prices or the plan; a test fails while the page is of
another plan:

    python scripts/make_procurement.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import planner
from planner.sweeps.read import read_plan
from planner.sweeps.results import Sweep

ROOT = Path(planner.__file__).parents[1]
FILE = ROOT / "docs" / "procurement.md"
NAME = "procurement"
PIVOT = ("--pivot", "gpu,contract,num_gpus", "--value", "cost", "--full")

_HEAD = """# A procurement question

Made by `python scripts/make_procurement.py` from the plan `search_spaces/sweeps/{name}.toml`
(digest {digest}): {models} models, {gpus} GPUs, {counts} numbers of GPUs and {contracts}
contracts, {scenarios:,} scenarios, one command:

```sh
planner sweep {name} --output {name}
```

```toml
{plan}```

## What it says

```text
{summary}```

The places of a model in full, with the plan of every winner, where one overtakes another, and
the front: `planner sweep show {name} --where 'model=Llama 2 70B' --full`. Every scenario is a row
of `{name}/scenarios.csv`.

## Cost of the run

By GPU, contract and number of GPUs, for each model:
`planner sweep show {name} --pivot gpu,contract,num_gpus --value cost --where 'model=...'`.
"""
_TABLE = """
### {model}

```text
{table}```
"""


def page() -> str:
    """The page as the shipped plan makes it."""
    plan = read_plan(NAME)
    axes = plan.works[0].axes
    with tempfile.TemporaryDirectory() as folder:
        summary = _printed(folder, "sweep", NAME, "--output", NAME)
        names = dict.fromkeys(row["model"] for row in Sweep(Path(folder) / NAME).rows())
        tables = [
            _TABLE.format(
                model=name, table=_printed(folder, "sweep", "show", NAME, *PIVOT, *_of(name))
            )
            for name in names
        ]
    text = (ROOT / "search_spaces" / "sweeps" / f"{NAME}.toml").read_text(encoding="utf-8")
    head = _HEAD.format(
        name=NAME,
        digest=plan.digest[:16],
        models=len(axes["model"]),
        gpus=len(axes["gpu"]),
        counts=len(axes["num_gpus"]),
        contracts=len(axes["contract"]),
        scenarios=plan.num_scenarios,
        plan=text,
        summary=summary,
    )
    return head + "".join(tables)


def _of(model: str) -> tuple[str, str]:
    return "--where", f"model={model}"


def _printed(folder: str, *words: str) -> str:
    environment = {**os.environ, "COLUMNS": "80", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "planner", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line.rstrip() for line in done.stdout.strip("\n").splitlines()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    FILE.write_text(page(), encoding="utf-8")

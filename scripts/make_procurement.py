"""Make docs/reference/procurement.md: five models, twelve GPUs, six counts, three contracts.

A table of the winners, a picture of every model, all scenarios as CSV. Run it after a change of
predictions, prices or the plan; a test fails while the page is of another plan:

    python scripts/make_procurement.py
"""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from make_pictures import make_small
from spec_pages import table

import planner
from planner.__main__ import run
from planner.base import formatting
from planner.base.csv_cells import Row, number_or_nan
from planner.sweeps.columns import COST, TIME
from planner.sweeps.find_plan import read_plan
from planner.sweeps.summary import Summary, summarize
from planner.sweeps.summary_blocks import format_measure, format_placement, format_plan, headlines
from planner.sweeps.sweep_folder import Sweep

ROOT = Path(planner.__file__).parents[1]
DOCS = ROOT / "docs"
FILE = DOCS / "reference" / "procurement.md"
NAME = "procurement"
FOLDER = Path("static") / NAME
SCENARIOS = FOLDER / "scenarios.csv"
COLUMNS = (
    "model,gpu,contract,num_gpus,cost_usd,cost_low_usd,cost_high_usd,calendar_time_days,"
    "framework,tensor_parallel,pipeline_parallel,data_parallel,zero_stage,provider,price_date,reason"
)
WIDTH = "900"

_PAGE = """# A procurement question

{description}.

One command asks {scenarios:,} scenarios ({models} models, {gpus} GPUs, {numbers} numbers of GPUs,
{contracts} contracts), and {feasible:,} have a plan:

```sh
planner sweep {name} --output {name}
```

## The answer

Cost with its 90 % interval, and the calendar time with failures:

{answer}

The pictures below show the cost of every scenario. `*` is the cheapest of a column, `~` is tied
with it, a letter is the reason why there is no plan, `-` a missing price.
[All {scenarios:,} scenarios]({csv}) are a CSV file.
`planner sweep show {name} --where "model == 'Llama 2 70B'" --full` shows where one GPU overtakes
another.
{pictures}
## The plan

Made by `python scripts/make_procurement.py` from `search_spaces/sweeps/{name}.toml`
(digest {digest}):

```toml
{plan}```
"""
_MODEL = """
### {model}

![Cost of {model} by GPU and number of GPUs]({picture})
"""


def page() -> str:
    """The page as the shipped plan makes it; its pictures and its CSV file are written."""
    plan = read_plan(NAME)
    axes = plan.works[0].axes
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        _run("sweep", NAME, "--output", NAME, "--quiet")
        summary = summarize(Sweep(Path(NAME)).rows(), plan)
        shown = ("sweep", "show", NAME)
        _run(*shown, "--columns", COLUMNS, "--csv", str(DOCS / SCENARIOS))
        for group in summary.groups:
            path = DOCS / picture_of(group.model)
            asked = ("--where", f"model == '{group.model}'", "--picture", "matrix")
            _run(*shown, *asked, "--picture-width", WIDTH, "--plot", str(path))
            make_small(path)
    shipped = ROOT / "search_spaces" / "sweeps" / f"{NAME}.toml"
    return _PAGE.format(
        name=NAME,
        description=plan.description,
        models=len(axes["model"]),
        gpus=len(axes["gpu"]),
        numbers=len(axes["num_gpus"]),
        contracts=len(axes["contract"]),
        feasible=summary.feasible,
        answer=table(("model", "choice", "GPUs", "cost", "time", "plan"), _answers(summary)),
        scenarios=plan.num_scenarios,
        csv=Path("..") / SCENARIOS,
        pictures="".join(
            _MODEL.format(model=group.model, picture=Path("..") / picture_of(group.model))
            for group in summary.groups
        ),
        digest=plan.digest[:16],
        plan=shipped.read_text(encoding="utf-8"),
    )


def picture_of(model: str) -> Path:
    """Where the picture of a model is, from the folder of the page."""
    return FOLDER / f"{model.lower().replace(' ', '_')}.png"


def _answers(summary: Summary) -> Iterator[tuple[str, ...]]:
    for group in summary.groups:
        for title, row in headlines(group):
            yield (group.model, title, _place(row), *_reached(row), format_plan(row))


def _place(row: Row) -> str:
    return f"{formatting.format_count(number_or_nan(row['num_gpus']))} x {format_placement(row)}"


def _reached(row: Row) -> tuple[str, str]:
    return format_measure(COST, row), format_measure(TIME, row, has_ends=False)


def _run(*words: str) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        code = run([*words])
    if code:
        raise SystemExit(code)


if __name__ == "__main__":
    os.environ["COLUMNS"] = "80"
    FILE.write_text(page(), encoding="utf-8")

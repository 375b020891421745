"""A serving engine as a launch target, made of its row and its option table."""

from __future__ import annotations

from functools import partial
from typing import Any

from planner.launch.option_table import OptionTable, tool_row
from planner.launch.read.serving_reader import EngineReader, read_engine
from planner.launch.target import LaunchTarget
from planner.launch.write.serving_writer import server_hooks

_LAUNCHERS = ("python", "python3", "env", "-m")


def make_engine_target(name: str, **hooks: Any) -> LaunchTarget:
    """Return the launch target of a serving engine whose options are all rows of its table.

    Its files are written if the row has the words that start it.

    Parameters
    ----------
    name : of the row and the table
    hooks : functions of the target that differ, see `LaunchTarget`
    """
    row, table = tool_row(name), OptionTable.load(name)
    words = row["starts"].replace("|", " ").split()
    engine = EngineReader(
        name=name,
        profile=next(filter(None, f"{row['profiles']}|{row['nearest']}".split("|")), ""),
        model_options=tuple(row.option for row in table.rows if row.parameter == "model"),
        programs=(*words, *_LAUNCHERS),
    )
    # Without an own router, any HTTP load balancer spreads the requests.
    writes = server_hooks(name, routes_replicas=False) if words else {}
    return LaunchTarget.of(
        name, **{"answers": partial(read_engine, engine=engine), **writes, **hooks}
    )

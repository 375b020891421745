"""Options of `sglang.launch_server`."""

from __future__ import annotations

import argparse
from typing import Any

import fake_sglang  # noqa: F401
from rows import Row, distinct, of_parser
from sglang.srt.server_args import ServerArgs


def answer(case: dict[str, Any]) -> list[Row]:
    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    return distinct(of_parser(parser))

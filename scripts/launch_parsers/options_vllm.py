"""Options of `vllm serve`."""

from __future__ import annotations

from typing import Any

import fake_vllm  # noqa: F401
from rows import Row, distinct, of_parser
from vllm.entrypoints.common.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser


def answer(case: dict[str, Any]) -> list[Row]:
    return distinct(of_parser(make_arg_parser(FlexibleArgumentParser())))

"""Options of Megatron-LM's argument parser."""

from __future__ import annotations

import argparse
from typing import Any

import stubs

stubs.install("triton")
# ruff: noqa: E402
from megatron.training.arguments import add_megatron_arguments
from rows import Row, distinct, of_parser


def answer(case: dict[str, Any]) -> list[Row]:
    return distinct(of_parser(add_megatron_arguments(argparse.ArgumentParser())))

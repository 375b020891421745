"""What OpenRLHF's `train_ppo_ray` makes of its arguments: {"argv": [...]}.

Its parser and its checks are the block under `__main__`, which runs without its last line, `train`.
"warnings" are what it prints where it changes an argument.
"""

from __future__ import annotations

import ast
import contextlib
import io
import sys
from pathlib import Path
from typing import Any

import stubs

FOLDER = Path(sys.prefix) / "openrlhf"
PROGRAM = FOLDER / "openrlhf" / "cli" / "train_ppo_ray.py"

stubs.pass_over(FOLDER, "openrlhf", "openrlhf.utils")


def checks() -> ast.Module:
    """Statements of the program: its imports of the standard library, and its main block."""
    program = ast.parse(PROGRAM.read_text(encoding="utf-8"))
    main = [node for node in program.body if isinstance(node, ast.If)][-1]
    imports = [
        node
        for node in program.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        and ast.unparse(node).split()[1].partition(".")[0] in sys.stdlib_module_names
    ]
    return ast.Module([*imports, *main.body[:-1]], [])


CODE = compile(checks(), str(PROGRAM), "exec")


def answer(case: dict[str, Any]) -> dict[str, Any]:
    sys.argv = [str(PROGRAM), *case["argv"]]
    printed, names = io.StringIO(), dict[str, Any]()
    with contextlib.redirect_stdout(printed):
        exec(CODE, names)
    args = names["args"]
    return {
        "global_batch_size": args.train.batch_size,
        "prompts_per_step": args.rollout.batch_size,
        "samples_per_prompt": args.rollout.n_samples_per_prompt,
        "zero_stage": args.ds.zero_stage,
        "tensor_parallel": args.ds.tensor_parallel_size,
        "rollout_tensor_parallel": args.vllm.tensor_parallel_size,
        "warnings": printed.getvalue().splitlines(),
    }

"""Make a table of measured matrix products from the kernel tables of aiconfigurator.

Reads one parquet file of the wheel aiconfigurator-core on PyPI, which needs pyarrow:

    python scripts/make_gemm_table.py aiconfigurator_core-0.12.0-cp311-abi3-....whl \\
        a100_sxm/gemm/sglang/0.5.10 312 hardware_specs/kernels/a100-sxm-80gb-bf16.csv
"""

from __future__ import annotations

import io
import sys
import zipfile
from pathlib import Path

import pandas as pd

ROWS = (1, 4, 16, 32, 64, 128, *range(256, 4097, 256), 8192, 16384, 32768)


def main(wheel: str, folder: str, peak_tflops: str, target: str) -> None:
    """Write the share of the peak that each product of bfloat16 reached."""
    inside = f"aiconfigurator_core/systems/data/{folder}/gemm_perf.parquet"
    with zipfile.ZipFile(wheel) as archive:
        table = pd.read_parquet(io.BytesIO(archive.read(inside)))
    table = table[(table.gemm_dtype == "bfloat16") & table.m.isin(ROWS)]
    mean = table.groupby(["m", "n", "k"]).latency.median()
    depths = mean.index.get_level_values("k").unique()
    complete = mean.unstack("k")[sorted(depths)].dropna()
    complete = complete.groupby("n").filter(lambda group: len(group) == len(ROWS))
    lines = ["rows,columns,depth,share"]
    for (m, n), row in complete.sort_index().iterrows():
        for k, milliseconds in row.items():
            share = 2.0 * m * n * k / (milliseconds * 1e-3) / (float(peak_tflops) * 1e12)
            lines.append(f"{m},{n},{k},{share:.4g}")
    Path(target).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A container must have the GPUs that its command starts on."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.errors import LaunchError
from planner.launch.read.read_launch import parse_launches

JOB = """kind: Job
spec:
  template:
    spec:
      containers:
      - name: train
        image: image
        command: [torchrun, --nproc-per-node, "{each}", pretrain_gpt.py, --num-layers, "2"]
        resources:
          limits:
            nvidia.com/gpu: 4
"""


def test_more_ranks_than_gpus_are_refused() -> None:
    with pytest.raises(LaunchError) as error:
        list(parse_launches(Path("job.yaml"), JOB.format(each=8)))
    told = "job.yaml: line 8: --nproc-per-node 8 is more than the 4 of nvidia.com/gpu on line 11."
    assert told in str(error.value)


@pytest.mark.parametrize("each", ["4", "2", "gpu"])
def test_as_many_or_fewer_are_not(each: str) -> None:
    (found,) = parse_launches(Path("job.yaml"), JOB.format(each=each))
    assert found.target == "megatron-lm"

"""Counting what rejects rows, and a mesh without them."""

from __future__ import annotations

import numpy as np
import pytest

from planner.configurations.configuration_tables import TrainingConfigurations
from planner.configurations.possible_parts import (
    MeshCodes,
    count_codes,
    possible_parts,
)


@pytest.mark.parametrize("size", [0, 1, 7, 2**16 - 1, 2**16, 2**16 + 1, 200_001])
def test_counts_are_those_of_every_code(size):
    codes = np.random.default_rng(size).integers(0, 23, size).astype(np.int8)
    expected = [np.count_nonzero(codes == number) for number in range(26)]
    assert count_codes(codes, 25).tolist() == expected


def test_a_mesh_is_counted_as_its_rows():
    codes = np.random.default_rng(0).integers(0, 5, (60, 50, 40)).astype(np.int8)
    flipped = np.broadcast_to(codes[:, :1], codes.shape)[::-1]
    assert count_codes(flipped, 4).tolist() == np.bincount(flipped.ravel(), minlength=5).tolist()


def test_entries_at_which_nothing_is_possible_are_left_out_and_counted():
    mesh = TrainingConfigurations.of(
        num_gpus=8,
        global_batch_size=32,
        zero_stage=0,
        tensor_parallel=np.reshape([1, 2, 4], (3, 1)),
        micro_batch_size=np.reshape([1, 2, 4, 8], (1, 4)),
    )
    codes = np.array([[0, 2, 0, 3], [2, 2, 2, 2], [3, 1, 0, 1]], dtype=np.int8)
    [(possible, left)], dropped = possible_parts(
        mesh, MeshCodes.of((codes,), mesh.shape), 4, np.inf
    )
    assert possible.tensor_parallel.ravel().tolist() == [1, 4]
    assert possible.micro_batch_size.ravel().tolist() == [1, 4]
    assert left.tolist() == [[0, 0], [3, 0]]
    assert dropped.tolist() == [[0, 0, 1, 1, 0], [0, 0, 4, 0, 0], [0, 2, 0, 0, 0]]
    assert dropped.sum() + possible.size == mesh.size

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


def exclusions(*, heads: int, stages: int, seed: int) -> tuple[np.ndarray, tuple[int, ...]]:
    """Codes of a mesh of four axes in which pairs of axes exclude each other."""
    draw = np.random.default_rng(seed)
    shape = (heads, stages, 7, 6)
    by_pair = (
        np.where(draw.random((heads, stages, 1, 1)) < 0.5, np.int8(2), np.int8(0)),
        np.where(draw.random((1, stages, 1, 6)) < 0.3, np.int8(1), np.int8(0)),
        np.where(draw.random((1, 1, 7, 1)) < 0.2, np.int8(4), np.int8(0)),
    )
    return by_pair, shape


def lowest(by_pair, shape):
    whole = np.stack([np.broadcast_to(np.where(each == 0, 127, each), shape) for each in by_pair])
    return np.where(whole.min(axis=0) == 127, 0, whole.min(axis=0))


@pytest.mark.parametrize(("heads", "stages"), [(5, 4), (60, 50)])
@pytest.mark.parametrize("least_saved", [1, 50, np.inf])
def test_parts_hold_all_that_is_possible_once_and_the_others_are_counted(
    heads, stages, least_saved
):
    by_pair, shape = exclusions(heads=heads, stages=stages, seed=3)
    whole, codes = lowest(by_pair, shape), MeshCodes.of(by_pair, shape)
    parts = codes.parts(least_saved)
    held = np.zeros(shape, dtype=int)
    for part in parts:
        held[np.ix_(*part)] += 1
        assert (codes.at(part) == whole[np.ix_(*part)]).all()
    assert held.max() == 1
    assert (held[whole == 0] == 1).all()
    outside = [
        np.bincount(row[kept == 0], minlength=6) for row, kept in zip(whole, held, strict=True)
    ]
    assert codes.counts_outside(parts, 5).tolist() == np.array(outside).tolist()
    assert (len(parts) > 1) == (least_saved < np.inf)


def test_a_mesh_is_divided_where_that_leaves_out_most():
    """Half of the ZeRO stages have no pipeline: two meshes need 4 + 2 x 6 rows of 4 x 7."""
    stage, pipeline = np.arange(4).reshape(4, 1), np.arange(7).reshape(1, 7)
    codes = MeshCodes.of([np.where((stage > 1) & (pipeline > 0), np.int8(1), np.int8(0))], (4, 7))
    sizes = sorted(len(first) * len(second) for first, second in codes.parts(1))
    assert sizes in ([2, 14], [4, 12])
    assert len(codes.parts(13)) == 1


@pytest.mark.parametrize("axes_apart", [True, False])
def test_rules_judge_each_value_once_and_give_every_configuration_its_code(axes_apart):
    pairs = np.array([(t, c) for t in (1, 2, 4, 8) for c in (1, 2, 4)], dtype=float)
    if not axes_apart:  # two values that are chosen together
        pairs = pairs[[0, 4, 8, 11]]
    mesh = TrainingConfigurations.of(
        num_gpus=8,
        global_batch_size=np.arange(1, 101).reshape(1, -1, 1),
        zero_stage=0,
        tensor_parallel=pairs[:, 0].reshape(-1, 1, 1),
        context_parallel=pairs[:, 1].reshape(-1, 1, 1),
        micro_batch_size=np.arange(1, 401).reshape(1, 1, -1),
    )
    sizes = []

    def judge(c):
        micro_batches = c.num_micro_batches
        sizes.append(micro_batches.size)
        return (
            np.where(micro_batches != np.floor(micro_batches), np.int8(2), np.int8(0)),
            np.where(c.tensor_parallel > 4, np.int8(1), np.int8(0)),
        )

    codes = MeshCodes.of_rules(mesh, judge)
    everywhere = [np.arange(length) for length in mesh.shape]
    assert (codes.at(everywhere) == lowest(judge(mesh), mesh.shape)).all()
    assert codes.codes.size < mesh.size
    assert sizes[0] <= sizes[1]

"""The chunked scan against products counted one by one."""

import pytest

from planner.formulas.attention import (
    DELTA_CHUNK,
    MAMBA2_CHUNK,
    chunked_scan_bytes,
    chunked_scan_flops,
    recurrence_flops,
    selective_scan_bytes,
    selective_scan_flops,
)

HEADS, GROUPS, KEY, VALUE, TOKENS = 6, 2, 16, 32, 1024
STATE = HEADS * KEY * VALUE


def _product(m: int, n: int, k: int) -> int:
    return 2 * m * n * k


def test_mamba2_multiplies_these_matrices_in_a_chunk() -> None:
    c = MAMBA2_CHUNK
    scores = GROUPS * _product(c, c, KEY)
    values = HEADS * _product(c, VALUE, c)
    written, read = (HEADS * _product(KEY, VALUE, c) for _ in ("written", "read"))
    flops = chunked_scan_flops(
        tokens=TOKENS,
        key_width=GROUPS * KEY,
        value_width=HEADS * VALUE,
        expanded_key_width=HEADS * KEY,
        state=STATE,
        delta_rule=False,
    )
    assert flops == TOKENS / c * (scores + values + written + read)


def test_the_delta_rule_multiplies_these_matrices_in_a_chunk() -> None:
    c = DELTA_CHUNK
    scores = 2 * _product(c, c, KEY)  # keys with keys, queries with keys
    solved = _product(c, KEY, c) + _product(c, VALUE, c)
    values = _product(c, VALUE, c)
    states = 3 * _product(c, VALUE, KEY)  # what is corrected, written, read
    flops = chunked_scan_flops(
        tokens=TOKENS,
        key_width=GROUPS * KEY,
        value_width=HEADS * VALUE,
        expanded_key_width=HEADS * KEY,
        state=STATE,
        delta_rule=True,
    )
    assert flops == TOKENS / c * HEADS * (scores + solved + values + states)


@pytest.mark.parametrize("delta_rule", [True, False])
def test_a_chunk_costs_more_than_the_recurrence_and_reads_its_inputs(delta_rule: bool) -> None:
    recurrence = recurrence_flops(tokens=TOKENS, state=STATE, delta_rule=delta_rule)
    mixed, values = 2 * GROUPS * KEY + HEADS * VALUE, HEADS * VALUE
    chunked = chunked_scan_flops(
        tokens=TOKENS,
        key_width=GROUPS * KEY,
        value_width=values,
        expanded_key_width=HEADS * KEY,
        state=STATE,
        delta_rule=delta_rule,
    )
    moved = chunked_scan_bytes(
        tokens=TOKENS, mixed_width=mixed, value_width=values, state=STATE, delta_rule=delta_rule
    )
    assert chunked > recurrence
    assert moved > 2 * TOKENS * (mixed + values)


def test_the_selective_scan_takes_twelve_slots_a_number_of_the_state() -> None:
    """Four fused operations, and an exponential in the time of eight: 2 FLOPs each."""
    assert selective_scan_flops(tokens=TOKENS, state=STATE) == TOKENS * STATE * 2 * (4 + 8)
    # Three inputs and an output of 2 bytes a channel; keys and queries.
    moved = selective_scan_bytes(tokens=TOKENS, width=64, key_width=16)
    assert moved == TOKENS * (2 * 4 * 64 + 2 * 2 * 16)

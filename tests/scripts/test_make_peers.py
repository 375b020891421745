"""The page of other predictors is that of today's predictions, and says where they are better."""

from __future__ import annotations

import re
from collections.abc import Sequence

import make_peers
import pytest
from make_peers import Pair, Pairs

from planner.validation.accuracy import ComparedRun


def test_the_page_is_made_by_its_script(shipped_tables: Sequence[Sequence[ComparedRun]]) -> None:
    text = make_peers.PAGE.read_text(encoding="utf-8")
    assert make_peers.page(shipped_tables) == text, "run scripts/make_peers.py"
    assert len(re.findall(r"^### ", text, re.MULTILINE)) >= 5


def test_the_better_one_has_the_smaller_mean_error() -> None:
    near, far = (
        Pairs(name="x", pairs=[Pair(group="x", peer=1.2, planner=ratio, fitted=fitted)] * 2)
        for ratio, fitted in ((0.9, False), (1.5, True))
    )
    assert near.peer == pytest.approx((0.2, 0.2))
    assert near.planner_is_better
    assert near.unfitted == pytest.approx(0.1)
    assert not far.planner_is_better
    assert far.unfitted is None


def test_every_peer_has_a_version_and_a_date() -> None:
    for peer, version, date in make_peers._by_peer():
        assert peer
        assert re.search(r"\d", version)
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", date)

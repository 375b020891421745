"""The campaign factor is that of the published campaigns, judged by publishers left out."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from statistics import median

import make_campaigns
import pytest

from planner.specs.catalogue import Catalogue


@cache
def known() -> tuple[make_campaigns.Campaign, ...]:
    return tuple(make_campaigns.campaigns())


@pytest.mark.slow
def test_the_specs_have_what_campaigns_tell() -> None:
    told, fitted = Catalogue().load_reliability("published").spec.campaign, known()
    assert told is not None
    found = make_campaigns.fitted(fitted)
    for name in ("typical", "low", "high"):
        assert getattr(told, name) == pytest.approx(getattr(found, name), abs=0.006), name


@pytest.mark.slow
def test_the_page_is_that_of_today() -> None:
    assert make_campaigns.PAGE.read_text(encoding="utf-8") == make_campaigns.page(known())


def test_of_publishers_left_out_half_are_within_a_sixth() -> None:
    judged = make_campaigns.left_out(known())
    assert median(abs(math.expm1(error)) for _, error, _ in judged) < 1 / 6
    assert sum(inside for _, _, inside in judged) > 0.75 * len(judged)


def test_a_publisher_counts_once_however_many_campaigns_it_has() -> None:
    one = known()[0]
    few = [
        replace(one, publisher=name, published=one.predicted * at)
        for name, at in (("a", 1.0), ("b", 1.2), ("c", 1.4))
    ]
    many = [*few, *[replace(few[2], name=str(at)) for at in range(50)]]
    assert make_campaigns.fitted(many).typical == pytest.approx(1.2, rel=0.01)
    assert make_campaigns.fitted(few).typical == pytest.approx(1.2)

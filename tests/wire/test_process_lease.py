"""A lease is lost when it was seen unrenewed for its whole length, and in no other case."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cases import cases

from toolwire.wire.process_lease import Sightings


def looks(*looks: tuple[float, float, int | None]) -> list[bool]:
    """Whether each look of a watcher, from one time to another, at a lease with this renewal number, shows its loss."""
    sightings = Sightings(15.0)
    return [
        bool(sightings.lost(began, ended, [] if renewal is None else [("p", renewal)]))
        for began, ended, renewal in looks
    ]


@pytest.mark.covers("FLT-6")
@cases(
    ("seen", "lost"),
    [
        pytest.param([(0, 0, 3), (5, 5, 3), (10, 10, 3), (15, 15, 3)], [0, 0, 0, 1], id="not renewed"),
        pytest.param([(0, 0, 3), (5, 5, 3), (10, 10, 4), (15, 15, 4), (20, 20, 4)], [0] * 5, id="renewed late"),
        pytest.param([(0, 0, 3), (5, 5, None), (10, 10, 3), (15, 15, 3), (20, 20, 3)], [0] * 5, id="in time once"),
        pytest.param([(0, 0, 3), (40, 40, 3), (45, 45, 3), (50, 50, 3), (55, 55, 3)], [0] * 4 + [1], id="late look"),
        pytest.param([(0, 0, 3), (5, 30, 3), (31, 31, 3), (36, 36, 3), (41, 41, 3)], [0] * 5, id="slow look"),
        pytest.param(
            [(0, 0, 3), (5, 14, 3), (14, 14, 3), (19, 19, 3), (24, 24, 3), (29, 29, 3)], [0] * 5 + [1], id="slow answer"
        ),
        pytest.param([(0, 4, 3), (5, 9, 3), (10, 14, 3), (15, 19, 3), (20, 24, 3)], [0] * 4 + [1], id="from its end"),
    ],
)
def test_a_lease_is_lost_when_it_was_seen_unrenewed_for_its_whole_length(seen: Any, lost: list[int]) -> None:
    assert looks(*seen) == [bool(each) for each in lost]


def test_a_look_that_failed_starts_anew() -> None:
    sightings = Sightings(15.0)
    for began in (0.0, 5.0, 10.0):
        assert not sightings.lost(began, began, [("p", 3)])
    sightings.forget()
    assert not sightings.lost(15.0, 15.0, [("p", 3)])
    for began in (20.0, 25.0):
        assert not sightings.lost(began, began, [("p", 3)])
    assert sightings.lost(30.0, 30.0, [("p", 3)])

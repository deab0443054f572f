"""The clock by which the deadlines of a connection are reckoned."""

from __future__ import annotations

from typing import Any, cast

from toolwire.wire.pausable_clock import StoppableClock


class Loop:
    def __init__(self) -> None:
        self.now = 100.0

    def time(self) -> float:
        return self.now


def test_it_goes_with_the_loop_and_stands_while_anybody_holds_it() -> None:
    loop = Loop()
    clock = StoppableClock(cast(Any, loop))
    loop.now = 101
    assert (clock.time(), clock.stands) == (101, False)
    clock.hold()
    loop.now = 105
    clock.hold()
    loop.now = 110
    clock.let_go()
    assert (clock.time(), clock.stands) == (101, True)
    loop.now = 111
    clock.let_go()
    assert (clock.time(), clock.stands, clock.behind) == (101, False, 10)
    loop.now = 112
    clock.hold()
    loop.now = 115
    clock.let_go()
    loop.now = 116
    assert (clock.time(), clock.behind) == (103, 13)

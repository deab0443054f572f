"""The network of a simulation: a connection delivers everything in order, or breaks."""

from __future__ import annotations

from tests.cases import cases
from tests.simulation.network import Broken, Exchange, Network
from tests.simulation.world import Process, World


class Reader:
    """A client that reads the body of a response."""

    def __init__(self, seed: int = 1) -> None:
        self.world = World(seed)
        self.process = Process(self.world, "client")
        self.network = Network(self.world, [])
        self.exchange = Exchange(self.network, 1, self.process, "GET", {}, b"", None)
        self.read: list[bytes] = []
        self.is_broken = False
        with self.world.inside(self.process):
            self._task = self.process.loop.create_task(self._read())

    async def _read(self) -> None:
        try:
            async for chunk in self.exchange.chunks():
                self.read.append(chunk)
        except Broken:
            self.is_broken = True


@cases("seed", range(5))
def test_nothing_comes_through_after_what_was_lost(seed: int) -> None:
    """The replica does not know at once that the connection is broken, and goes on sending."""
    reader = Reader(seed)
    for number in range(1, 6):
        if number == 3:
            reader.network.fates.append("lost")
        reader.exchange.to_client(reader.exchange._receive, b"%d" % number)
    reader.world.run(60.0)
    assert reader.read == [b"1", b"2"]
    assert reader.is_broken


def test_a_client_that_goes_away_reads_nothing_more() -> None:
    reader = Reader()
    reader.exchange.to_client(reader.exchange._receive, b"1")
    reader.world.run(1.0)
    assert (reader.read, reader.is_broken) == ([b"1"], False)
    with reader.world.inside(reader.process):
        reader.exchange.close()
    reader.world.run(2.0)
    assert reader.is_broken

"""The bound of waits in tests."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest
from tests import patience as module
from tests.patience import Stopwatch, alarm, patience

from toolwire.testing import elapse


async def test_a_wait_without_an_end_fails_and_says_what_for() -> None:
    with pytest.raises(AssertionError, match=r"waited 0\.01 seconds for a sign"):
        async with patience("a sign", 0.01):
            await asyncio.Event().wait()
    current = asyncio.current_task()
    assert current is not None and not current.cancelling()


async def test_a_test_that_advances_the_loop_does_not_shorten_the_wait() -> None:
    done = asyncio.Event()
    asyncio.get_running_loop().call_later(1000, done.set)

    async def wait() -> str:
        async with patience("a sign", 20):
            await done.wait()
            return "done"

    waiting = asyncio.create_task(wait())
    await elapse(500)
    await elapse(500)
    assert await waiting == "done"


async def test_a_wait_ends_on_a_machine_that_is_always_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stopwatch, "quiet", lambda watch: 0.0)
    with pytest.raises(AssertionError, match=r"waited 0\.02 seconds for a sign"):
        async with asyncio.timeout(10), patience("a sign", 0.02):
            await asyncio.Event().wait()


async def test_a_cancellation_from_outside_stays_one() -> None:
    async def wait() -> None:
        async with patience("a sign"):
            await asyncio.Event().wait()

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


def test_stopwatch_stands_still_while_processes_wait_for_a_processor(tmp_path: Path) -> None:
    now, pressure = [100.0], tmp_path / "cpu"

    def wait(seconds: int) -> None:
        pressure.write_text(f"some avg10=0.00 avg60=0.00 avg300=0.00 total={seconds * 1_000_000}\nfull total=0\n")

    wait(5)
    watch = Stopwatch(lambda: now[0], pressure)
    now[0] = 130.0
    assert (watch.real(), watch.quiet()) == (30, 30)
    wait(25)
    assert (watch.real(), watch.quiet()) == (30, 10)


def test_stopwatch_counts_all_time_where_nothing_measures_pressure(tmp_path: Path) -> None:
    now = [100.0]
    watch = Stopwatch(lambda: now[0], tmp_path / "missing")
    now[0] = 130.0
    assert watch.quiet() == 30


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer of POSIX")
@pytest.mark.slow  # so that the timer of this test is another one
@pytest.mark.parametrize(("real", "quiet"), [(21.0, 20.0), (60.0, 3.0)])
def test_alarm_rings_after_quiet_seconds_and_at_the_latest_after_three_times_as_many(
    real: float, quiet: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = [50.0, 2.0]

    class Faked(Stopwatch):
        def real(self) -> float:
            return passed[0]

        def quiet(self) -> float:
            return passed[1]

    monkeypatch.setattr(module, "Stopwatch", Faked)
    before = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)[0]
    rung: list[bool] = []
    cancel = alarm(20, lambda: rung.append(True))
    try:
        signal.raise_signal(signal.SIGALRM)
        assert (rung, signal.getitimer(signal.ITIMER_REAL)[0] > 0) == ([], True)
        passed[:] = real, quiet
        signal.raise_signal(signal.SIGALRM)
        assert rung == [True]
        cancel()
        assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
    finally:
        signal.signal(signal.SIGALRM, before[0])
        signal.setitimer(signal.ITIMER_REAL, before[1])

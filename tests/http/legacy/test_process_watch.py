"""A process is gone when it was silent for the whole time, and in no other case."""

from __future__ import annotations

import pytest

from toolwire.http.legacy import process_watch
from toolwire.http.legacy.process_watch import SILENT_SECONDS, ProcessWatch


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def watch(clock: Clock) -> ProcessWatch:
    return ProcessWatch(clock)


def ask(watch: ProcessWatch) -> bool:
    """Ask, and hear the question at once."""
    return watch.asked("there", watch.silence("there"))


def test_a_process_that_never_answers_is_gone_after_the_whole_time(watch: ProcessWatch, clock: Clock) -> None:
    for _ in range(4):
        assert not ask(watch)
        clock.now += SILENT_SECONDS / 4
    assert not watch.is_gone("there")
    assert ask(watch)
    assert watch.is_gone("there")
    assert not watch.is_gone("elsewhere")


def test_an_answer_ends_the_silence_however_late_it_comes(watch: ProcessWatch, clock: Clock) -> None:
    for _ in range(10):
        assert not ask(watch)
        clock.now += SILENT_SECONDS - 1
        watch.heard("there")
    # The last question was sent when the time was over. The answer comes before it on the topic.
    assert not ask(watch)
    clock.now += SILENT_SECONDS
    silence = watch.silence("there")
    assert silence is not None
    watch.heard("there")
    assert not watch.asked("there", silence)
    # Another question began another silence meanwhile.
    assert not watch.asked("there", None)
    clock.now += 1
    assert not watch.asked("there", silence)


def test_a_question_that_was_sent_too_early_decides_nothing(watch: ProcessWatch, clock: Clock) -> None:
    assert not ask(watch)
    early = watch.silence("there")
    clock.now += 10 * SILENT_SECONDS  # This process stood still, or was cut off from the bus.
    assert not watch.asked("there", early)
    assert ask(watch)


def test_questions_of_other_processes_begin_a_silence_and_do_not_end_it(watch: ProcessWatch, clock: Clock) -> None:
    for _ in range(10):
        assert not watch.asked("there", None)
        clock.now += SILENT_SECONDS
    assert ask(watch)


def test_lost_messages_begin_anew(watch: ProcessWatch, clock: Clock) -> None:
    assert not ask(watch)
    clock.now += SILENT_SECONDS
    silence = watch.silence("there")
    watch.lost()
    assert not watch.asked("there", silence)
    assert not ask(watch)


def test_a_process_that_was_taken_for_gone_and_speaks_is_there(watch: ProcessWatch, clock: Clock) -> None:
    ask(watch)
    clock.now += SILENT_SECONDS
    assert ask(watch)
    watch.heard("there")
    assert not watch.is_gone("there")
    assert not ask(watch)


def test_processes_that_are_remembered_have_a_bound(
    watch: ProcessWatch, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_watch, "MAX_PROCESSES", 3)
    names = [str(number) for number in range(5)]
    for name in names:
        watch.asked(name, None)
    clock.now += SILENT_SECONDS
    assert [name for name in names if watch.silence(name) is not None] == ["2", "3", "4"]

"""What a person at the terminal sees of a server's questions, and what happens without their consent: nothing."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.cases import cases

from toolwire.cli import screen
from toolwire.cli.keyboard import Keyboard
from toolwire.cli.questions import elicitation
from toolwire.client import Accept, Cancel, Decline
from toolwire.protocol import types as t

PAGE = "https://login.example.org/start?who=you"
FORM = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


class Person:
    def __init__(self, *answers: str | None) -> None:
        self._answers = list(answers)
        self.seen: list[str] = []

    def tell(self, text: str) -> None:
        self.seen.append(text)

    async def ask(self, question: str) -> str | None:
        self.seen.append(question)
        return self._answers.pop(0)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    pages: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda page: pages.append(page) or True)
    return pages


async def asked(person: Person, mode: str, **params: Any) -> Any:
    answers = elicitation(person, lambda: None)
    callback = answers.form if mode == "form" else answers.url
    assert callback is not None
    return await callback("Who are you?", t.ElicitRequestParams(mode=mode, message="Who are you?", **params))


@pytest.mark.covers("ELI-5")
@pytest.mark.parametrize(("said", "answer"), [("y", Accept()), ("n", Decline()), ("", Decline()), (None, Cancel())])
async def test_a_page_is_shown_in_full_and_opened_only_on_consent(
    opened: list[str], said: str | None, answer: Any
) -> None:
    person = Person(said)
    assert await asked(person, "url", url=PAGE) == answer
    assert person.seen[0] == "The server asks you to open a page: Who are you?"
    assert person.seen[1].strip() == PAGE
    assert opened == ([PAGE] if said == "y" else [])


@pytest.mark.covers("ELI-5")
@pytest.mark.parametrize(
    "page", ["javascript:alert(1)", "file:///etc/passwd", "vscode://open", f"{PAGE}\u3164", f"{PAGE}\ufe0f"]
)
async def test_what_is_no_web_address_is_never_opened(opened: list[str], page: str) -> None:
    assert await asked(Person(), "url", url=page) == Decline()
    assert opened == []


@pytest.mark.covers("ELI-5")
@cases(("said", "answer"), [("Oslo", {"city": "Oslo"}), ("-", Decline()), (None, Cancel())])
async def test_a_form_can_be_answered_declined_and_left(said: str | None, answer: Any) -> None:
    person = Person(said)
    assert await asked(person, "form", requested_schema=FORM) == answer
    assert person.seen[0] == "The server asks: Who are you?"
    assert "declines" in person.seen[1] and "cancels" in person.seen[1]


# --- a terminal -------------------------------------------------------------------------------------------------------


class FakeTerminal:
    """The other end of the terminal that standard input and standard error are."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.shown = ""

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    async def until(self, text: str) -> None:
        """Read what the terminal shows until a text is among it."""
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        loop.add_reader(self._descriptor, readable.set)
        try:
            async with asyncio.timeout(30):
                while text not in self.shown:
                    await readable.wait()
                    readable.clear()
                    self.shown += os.read(self._descriptor, 4096).decode()
        finally:
            loop.remove_reader(self._descriptor)


@contextmanager
def fake_terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeTerminal]:
    """Make standard input and standard error a terminal. Not a fixture: pytest sets both anew for each phase."""
    outer, inner = os.openpty()
    monkeypatch.setenv("NO_COLOR", "1")
    with (
        os.fdopen(inner, "r", encoding="utf-8", closefd=False) as reading,
        os.fdopen(inner, "w", encoding="utf-8", closefd=False) as writing,
        monkeypatch.context() as patch,
    ):
        patch.setattr(sys, "stdin", reading)
        patch.setattr(sys, "stderr", writing)
        yield FakeTerminal(outer)
    os.close(inner)
    os.close(outer)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo terminals")
async def test_output_of_a_server_waits_until_the_question_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_terminal(monkeypatch) as terminal:
        progress = screen.ProgressLine()
        asking = asyncio.ensure_future(Keyboard().ask("Open it? [y/n] "))
        await terminal.until("Open it? [y/n] ")
        progress(t.ProgressNotificationParams(progress_token=1, progress=1, message="Continue? [y/n] "))
        screen.server_note("a line of the server")
        screen.note("a line of the command")
        terminal.type("y\n")
        assert await asking == "y"
        await terminal.until("a line of the command")
        assert terminal.shown.startswith("Open it? [y/n] y\r\nserver| a line of the server\r\n")
        assert "Continue?" not in terminal.shown


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo terminals")
async def test_text_typed_before_a_question_is_not_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_terminal(monkeypatch) as terminal:
        terminal.type("y\nye")
        await terminal.until("y\r\nye")
        asking = asyncio.ensure_future(Keyboard().ask("Open it? [y/n] "))
        await terminal.until("Open it? [y/n] ")
        terminal.type("no\n")
        assert await asking == "no"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo terminals")
async def test_questions_are_asked_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_terminal(monkeypatch) as terminal:
        person = Keyboard()
        first = asyncio.ensure_future(person.ask("First? "))
        second = asyncio.ensure_future(person.ask("Second? "))
        await terminal.until("First? ")
        terminal.type("one\n")
        assert await first == "one"
        await terminal.until("Second? ")
        terminal.type("two\n")
        assert await second == "two"
        assert terminal.shown.index("one") < terminal.shown.index("Second?")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo terminals")
async def test_question_after_a_cancelled_one_gets_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_terminal(monkeypatch) as terminal:
        person = Keyboard()
        first = asyncio.ensure_future(person.ask("First? "))
        await terminal.until("First? ")
        first.cancel()
        await asyncio.wait({first})
        second = asyncio.ensure_future(person.ask("Second? "))
        await terminal.until("Second? ")
        terminal.type("two\n")
        assert await second == "two"


def test_held_output_is_bounded(capsys: pytest.CaptureFixture[str]) -> None:
    with screen.hold_output():
        for _ in range(10_000):
            screen.server_note("x" * 100)
    err = capsys.readouterr().err
    assert len(err) < screen.SHOWN_ON_TERMINAL + 200
    kept = err.count("server| ")
    assert err.endswith(f"toolwire: {10_000 - kept:,} lines of output left out while the question was open\n")

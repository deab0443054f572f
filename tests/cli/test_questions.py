"""What a person at the terminal sees of a server's questions, and what happens without their consent: nothing."""

from __future__ import annotations

from typing import Any

import pytest

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
@pytest.mark.parametrize("page", ["javascript:alert(1)", "file:///etc/passwd", "vscode://open"])
async def test_what_is_no_web_address_is_never_opened(opened: list[str], page: str) -> None:
    assert await asked(Person(), "url", url=page) == Decline()
    assert opened == []


@pytest.mark.covers("ELI-5")
@pytest.mark.parametrize(("said", "answer"), [("Oslo", {"city": "Oslo"}), ("-", Decline()), (None, Cancel())])
async def test_a_form_can_be_answered_declined_and_left(said: str | None, answer: Any) -> None:
    person = Person(said)
    assert await asked(person, "form", requested_schema=FORM) == answer
    assert person.seen[0] == "The server asks: Who are you?"
    assert "declines" in person.seen[1] and "cancels" in person.seen[1]

"""Questions that the page answers: elicitation, sampling, sign-ins, wishes of views."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from toolwire import schemas
from toolwire.auth.errors import SignInFailed
from toolwire.client import Accept, Cancel, Decline, Elicitation, Rejected, Sampling
from toolwire.inspector.events import Events
from toolwire.protocol import types as t

#: The inspector declines further questions by itself.
MAX_OPEN: Final = 50


class BadAnswer(Exception):
    """The answer of the page does not fit its question; the page shows why."""


class _InputRequest:
    def __init__(self, identifier: str, kind: str, params: Any) -> None:
        self.identifier = identifier
        self.kind = kind
        self.params = params
        self.answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    def describe(self) -> dict[str, Any]:
        return {"id": self.identifier, "kind": self.kind, "params": self.params}


class InputRequests:
    """The open questions, and the callbacks of the client that ask them."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._open: dict[str, _InputRequest] = {}
        self._numbers = itertools.count(1)
        self.elicitation: Elicitation = Elicitation(form=self._form, url=self._url, completed=self._completed)
        self.sampling: Sampling = Sampling(self._sample, tools=True, context=True)

    def describe(self) -> list[dict[str, Any]]:
        return [question.describe() for question in self._open.values()]

    def answer(self, identifier: str, answer: dict[str, Any]) -> bool:
        """Accept the page's answer. Return False if the question is closed.

        Raises `BadAnswer` when the answer does not fit.
        """
        question = self._open.get(identifier)
        if question is None or question.answer.done():
            return False
        if question.kind == "form" and answer.get("action") == "accept":
            _check(answer.get("content"), question.params.get("requestedSchema"))
        if question.kind == "sign-in" and answer.get("action") == "accept":
            raise BadAnswer("Signing in is answered by the page where it happens")
        question.answer.set_result(answer)
        return True

    async def _ask(self, kind: str, params: Any) -> dict[str, Any]:
        if len(self._open) >= MAX_OPEN:
            return {"action": "decline"}
        question = _InputRequest(str(next(self._numbers)), kind, params)
        self._open[question.identifier] = question
        self._events.tell("question", question=question.describe())
        try:
            return await question.answer
        finally:
            # Also when the call was cancelled: its question is closed in the page.
            del self._open[question.identifier]
            self._events.tell("answered", id=question.identifier)

    async def consent(self, kind: str, params: Any) -> bool:
        """Ask a person whether a view may do something.

        `kind` is the method that the view sent.
        """
        return (await self._ask(kind, params)).get("action") == "accept"

    async def sign_in(self, url: str) -> str:
        """Ask a person to open `url` and sign in.

        Returns the address that their browser is sent to in the end.
        """
        answer = await self._ask("sign-in", {"url": url})
        if answer.get("action") != "accept":
            raise SignInFailed("There was no sign-in")
        return str(answer["address"])

    def signed_in(self, address: str) -> bool:
        """Accept the address that a browser came back to.

        Returns False when no open question has its `state`.
        """
        for question in self._open.values():
            waits = question.kind == "sign-in" and not question.answer.done()
            if waits and _state(question.params["url"]) == _state(address) != "":
                question.answer.set_result({"action": "accept", "address": address})
                return True
        return False

    async def _form(self, message: str, params: t.ElicitRequestParams) -> Any:
        answer = await self._ask("form", params.to_dict())
        return _chosen(answer, Accept(answer.get("content") or {}))

    async def _url(self, message: str, params: t.ElicitRequestParams) -> Any:
        return _chosen(await self._ask("url", params.to_dict()), Accept())

    def _completed(self, elicitation_id: str) -> None:
        self._events.tell("completed", id=elicitation_id)

    async def _sample(self, params: t.CreateMessageRequestParams) -> t.CreateMessageResult:
        answer = await self._ask("sampling", params.to_dict())
        if answer.get("action") != "accept":
            raise Rejected("The user of the inspector refused")
        return t.CreateMessageResult(
            role="assistant",
            content=t.TextContent(str(answer.get("text", ""))),
            model=str(answer.get("model") or "a person"),
            stop_reason="endTurn",
        )


def _state(address: str) -> str:
    """Return the `state` of an address, which binds an answer to its question.

    RFC 6749 section 10.12.
    """
    return parse_qs(urlsplit(address).query).get("state", [""])[0]


def _chosen(answer: dict[str, Any], accepted: Accept) -> Any:
    action = answer.get("action")
    return accepted if action == "accept" else Decline() if action == "decline" else Cancel()


def _check(content: Any, schema: Any) -> None:
    if not isinstance(content, dict):
        raise BadAnswer("The answer to a form is an object")
    if not isinstance(schema, dict):
        return
    try:
        problems = schemas.compile(schema, what="the schema of the form").check(content)
    except schemas.SchemaError as error:
        raise BadAnswer(str(error)) from None
    if problems:
        raise BadAnswer("; ".join(schemas.sentence(problem) for problem in problems))

"""A client that answers in both eras: by a response on a legacy connection, by another round on 2026-07-28."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.wireclient import MODERN, Message, WireClient

#: Every revision that knows elicitation.
ASKING = ("2025-06-18", "2025-11-25", MODERN)
#: What a client can do that can do everything, in the words of the newest revisions.
EVERYTHING: Message = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}, "context": {}},
    "roots": {},
}
KINDS = ("elicitation/create", "sampling/createMessage", "roots/list")

Answer = Callable[[str, Message], Message]


def accept(content: Any = None, **members: Any) -> Message:
    """An elicitation that was accepted with these members, or with a single value."""
    return {"action": "accept", "content": members if content is None else {"value": content}}


class Conversation:
    """One request, with everything that was asked until it was answered."""

    def __init__(self) -> None:
        #: The last response.
        self.response: Message = {}
        #: Every question, in the order it was asked: its method and its params.
        self.asked: list[tuple[str, Message]] = []
        #: On 2026-07-28 the `input_required` results.
        self.rounds: list[Message] = []

    @property
    def result(self) -> Message:
        assert "result" in self.response, self.response
        result: Message = self.response["result"]
        return result

    @property
    def error(self) -> Message:
        assert "error" in self.response, self.response
        error: Message = self.response["error"]
        return error

    @property
    def text(self) -> str:
        """The text of a tool's result that is no error."""
        assert not self.result.get("isError"), self.result
        return str(self.result["content"][0]["text"])

    @property
    def failure(self) -> str:
        """The text of a tool's result that is an error."""
        assert self.result.get("isError"), self.result
        return str(self.result["content"][0]["text"])

    @property
    def messages(self) -> list[str]:
        """What the elicitations said."""
        return [params["message"] for _, params in self.asked]


async def converse(
    client: WireClient, method: str, params: Message, answer: Answer, *, most_rounds: int = 20
) -> Conversation:
    """Send a request and answer whatever is asked until it is done."""
    conversation = Conversation()

    def answered(kind: str, params: Message) -> Message:
        conversation.asked.append((kind, params))
        return answer(kind, params)

    for kind in KINDS:
        client.answers[kind] = lambda params, kind=kind: answered(kind, params)  # type: ignore[misc]
    more: Message = {}
    for _ in range(most_rounds):
        conversation.response = await client.request(method, params | more)
        result = conversation.response.get("result", {})
        if result.get("resultType") != "input_required":
            break
        assert client.revision == MODERN
        conversation.rounds.append(result)
        more = {
            "requestState": result["requestState"],
            "inputResponses": {
                key: answered(each["method"], each.get("params", {})) for key, each in result["inputRequests"].items()
            },
        }
    return conversation


async def call(client: WireClient, name: str, arguments: Message, answer: Answer, **options: Any) -> Conversation:
    """`converse` for `tools/call`."""
    return await converse(client, "tools/call", {"name": name, "arguments": arguments}, answer, **options)


def by_message(answers: dict[str, Any]) -> Answer:
    """Answers each elicitation by its message with a single value; `decline` and `cancel` are what they say."""

    def answer(kind: str, params: Message) -> Message:
        value = answers[params["message"]]
        return {"action": value} if value in ("decline", "cancel") else accept(value)

    return answer

"""`GraphCall`: a call of a tool that outlives the interrupts of its graph."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from msgspec import UNSET

from toolwire.agents.frameworks.framework_tools import FrameworkTools
from toolwire.agents.result_parts import ResultParts
from toolwire.client.handlers import Accept, Cancel, Decline
from toolwire.protocol import types as t
from toolwire.protocol.errors import NotSupported


class GraphQuestion:
    """A question of a server, as the payload of an interrupt, and its answer."""

    def __init__(self, message: str, params: t.ElicitRequestParams) -> None:
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        mode = "form" if params.mode is UNSET else params.mode
        self.payload: dict[str, Any] = {"key": "1", "message": message, "mode": mode}
        if mode == "url":
            self.payload["url"] = params.url
        else:
            self.payload["requested_schema"] = params.requested_schema

    def resume(self, resumed: Any) -> None:
        """Take what the graph was resumed with: `{"responses": {"1": {"action": ..., "content": ...}}}`."""
        responses = resumed.get("responses") if isinstance(resumed, Mapping) else None
        # The inner object alone is taken, too.
        given = responses.get(self.payload["key"]) if isinstance(responses, Mapping) else resumed
        given = given if isinstance(given, Mapping) else {}
        action = given.get("action")
        if action not in ("accept", "decline", "cancel"):
            raise ValueError(
                f"resume with an action, accept, decline or cancel, for the question, not {resumed!r:.200}"
            )
        if not self.answer.done():
            kinds = {"decline": Decline(), "cancel": Cancel()}
            self.answer.set_result(kinds.get(action) or Accept(given.get("content")))


class GraphCall:
    """A call of a tool that outlives the interrupts of its graph."""

    def __init__(
        self, tools: FrameworkTools, name: str, arguments: Mapping[str, Any], id: str | None, config: Any
    ) -> None:
        self.config = config
        self._name = name
        self._slot = tools.enter(name)
        self._questions: list[GraphQuestion] = []
        self._was_asked = asyncio.Event()
        self.is_interrupted: bool = False
        self.task: asyncio.Task[ResultParts] = asyncio.create_task(tools.call(name, dict(arguments), id, self._slot))
        # A task that is cancelled at once never begins.
        self.task.add_done_callback(lambda _: self._slot.leave())

    @property
    def is_asking(self) -> bool:
        return any(not question.answer.done() for question in self._questions)

    def ask(self, question: GraphQuestion) -> None:
        """Interrupt the graph, and let the calls behind this one begin."""
        self._questions.append(question)
        self._was_asked.set()
        self._slot.leave()

    async def result(self) -> ResultParts:
        """Return the result. Raise the interrupt of the graph for a question without an answer."""
        self.is_interrupted = False
        seen = 0
        while True:
            # A graph that is resumed comes here again, and asks the same questions in the same order.
            for question in self._questions[seen:]:
                question.resume(self._interrupt(question))
                seen += 1
            if self.task.done():
                return self.task.result()
            self._was_asked.clear()
            asked = asyncio.ensure_future(self._was_asked.wait())
            try:
                await asyncio.wait({self.task, asked}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                asked.cancel()

    def _interrupt(self, question: GraphQuestion) -> Any:
        """Return the answer that the graph was resumed with, or interrupt the graph."""
        from langgraph.errors import GraphInterrupt
        from langgraph.types import interrupt

        payload = {"type": "mcp_elicitation", "tool_name": self._name, "requests": [question.payload]}
        try:
            return interrupt(payload)
        except GraphInterrupt:
            self.is_interrupted = True
            raise
        except (KeyError, RuntimeError) as error:
            raise NotSupported(
                f"{self._name} asks the user: run it in a graph with a checkpointer, or give elicit="
            ) from error

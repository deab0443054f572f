"""A user and a model for tools that ask, made up: forms are filled in from their schema, or declined."""

from __future__ import annotations

from random import Random
from typing import Any, Final

from toolwire import schemas
from toolwire.client import Accept, Cancel, Decline, Elicitation, Sampling
from toolwire.protocol import types as t
from toolwire.testing.values import TEXTS, made

# How often a user who could answer does not.
_UNWILLING: Final = 0.2


class MadeUp:
    """Answers everything that a server may ask; `given` has what was said since it was last cleared."""

    def __init__(self, random: Random) -> None:
        self.given: list[Any] = []
        self.elicitation: Elicitation = Elicitation(form=self._form, url=self._url)
        self.sampling: Sampling = Sampling(self._sample, tools=True, context=True)
        self._random = random

    def _form(self, message: str, params: t.ElicitRequestParams) -> Any:
        schema = params.requested_schema
        assert isinstance(schema, dict)
        validator = schemas.compile(schema, what="the schema of a form")
        content = None if self._refuses() else next(made(schema, validator, self._random, 1), None)
        return self._say(self._no() if content is None else Accept(content))

    def _url(self, message: str, params: t.ElicitRequestParams) -> Any:
        return self._say(self._no() if self._refuses() else Accept())

    def _sample(self, params: t.CreateMessageRequestParams) -> str:
        text = self._random.choice(TEXTS)
        self.given.append(text)
        return text

    def _refuses(self) -> bool:
        return self._random.random() < _UNWILLING

    def _no(self) -> Decline | Cancel:
        return self._random.choice((Decline(), Cancel()))

    def _say(self, answer: Accept | Decline | Cancel) -> Accept | Decline | Cancel:
        action = type(answer).__name__.lower()
        self.given.append({action: answer.content} if isinstance(answer, Accept) and answer.content else action)
        return answer

"""Generated input for tests: fitting values, and random answers to questions."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, Final

from toolwire import schemas
from toolwire.client import Accept, Cancel, Decline, Elicitation, Sampling
from toolwire.protocol import types as t
from toolwire.schemas import Json, Schema, Validator
from toolwire.testing.schema_values import TEXTS, RandomMaker

SIMPLEST: Final[tuple[Json, ...]] = (None, False, 0, 1, 0.0, "", "a", [], {})

# How often arguments are made again when they do not fit.
_ATTEMPTS: Final = 50


def make_values(schema: Schema, validator: Validator, random: Random, examples: int) -> Iterator[dict[str, Any]]:
    """Yield objects that a schema allows: `examples` of them, or fewer if needed."""
    maker = RandomMaker(schema, random)
    found = 0
    for _ in range(examples + _ATTEMPTS):
        value = maker.whole({**schema, "type": "object"})
        if found < examples and not validator.check(value):
            found += 1
            yield value


def fitting(tool: t.Tool, validator: Validator, random: Random, examples: int) -> Iterator[dict[str, Any]]:
    """Yield arguments that a tool takes; raise `ValueError` if none could be made."""
    nothing = True
    for arguments in make_values(tool.input_schema, validator, random, examples):
        nothing = False
        yield arguments
    if nothing and examples:
        raise ValueError(f"no arguments could be made for {tool.name!r}: leave it out of tools=")


# --- answers to questions of a server -------------------------------------------------------------------------------

# How often a user declines or cancels.
_UNWILLING: Final = 0.2


class MadeUp:
    """A user and a model who answer every question of a server.

    `given` has their answers since it was last cleared. Forms are filled in from their schema, or declined.
    """

    def __init__(self, random: Random) -> None:
        self.given: list[Any] = []
        self.elicitation: Elicitation = Elicitation(form=self._form, url=self._url)
        self.sampling: Sampling = Sampling(self._sample, tools=True, context=True)
        self._random = random

    def _form(self, message: str, params: t.ElicitRequestParams) -> Any:
        schema = params.requested_schema
        assert isinstance(schema, dict)
        validator = schemas.compile(schema, what="the schema of a form")
        content = None if self._refuses() else next(make_values(schema, validator, self._random, 1), None)
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

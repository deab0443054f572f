"""`--answer` and `--sample`: answers to the questions of a server, given on the command line.

They work on every revision that has such questions, because the client uses the same callbacks for both eras.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import UNSET

from toolwire import schemas
from toolwire.cli import key_values, questions
from toolwire.cli.errors import UsageError
from toolwire.cli.screen import note
from toolwire.client import Accept, Cancel, Decline, Elicitation, Rejected, Sampling
from toolwire.protocol import types as t
from toolwire.protocol.errors import counted
from toolwire.schemas.walking import required_names
from toolwire.schemas.wording import nearest

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

Action: TypeAlias = type[Accept] | type[Decline] | type[Cancel]

_ACTIONS: Final[dict[str, Action]] = {"accept": Accept, "decline": Decline, "cancel": Cancel}
# A server that asks again after each answer must not keep the command busy for ever.
MOST_QUESTIONS: Final = 100
_SHOWN: Final = 200
_FIELDS: Final = 10


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--answer",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="answer a question of the server: KEY=VALUE, KEY:=JSON or '{...}' for the fields of its form, "
        "accept, decline or cancel for a question that no field answers; may be repeated",
    )
    parser.add_argument(
        "--sample",
        action="append",
        default=[],
        metavar="TEXT",
        help="answer a request of the server for the text of a model; may be repeated, for one request after the other",
    )


class ScriptedAnswers:
    """Answers to elicitation and sampling that were given as options.

    A question without an answer is cancelled. `check` then raises `UsageError`, which names the missing answer.
    """

    def __init__(self, arguments: Namespace) -> None:
        words, self._action = _split(arguments.answer)
        self._given = key_values.arguments(words)
        self._unused = set(self._given)
        self._samples: list[str] = list(arguments.sample)
        self._questions = 0
        self._problem: UsageError | None = None
        self.elicitation: Elicitation | None = Elicitation(form=self._form, url=self._url) if arguments.answer else None
        self.sampling: Sampling | None = Sampling(self._sample) if arguments.sample else None

    def check(self) -> None:
        """Raise `UsageError` for the first question that had no fitting answer."""
        if self._problem is not None:
            raise self._problem

    def note_unused(self) -> None:
        """Tell the user about answers that the server did not ask for."""
        if self._unused:
            note(f"toolwire: the server did not ask for {', '.join(sorted(self._unused))} (--answer)")
        if self._samples:
            note(f"toolwire: the server did not ask for {counted(len(self._samples), 'text')} of --sample")

    async def _form(self, message: str, params: t.ElicitRequestParams) -> Any:
        if self._asks_without_end():
            return self._failed(_endless())
        schema = {} if params.requested_schema is UNSET else params.requested_schema
        fields = questions.fields_of(schema)
        content = {
            name: questions.read_answer(name, self._given[name], member)
            for name, member in fields.items()
            if name in self._given
        }
        self._unused -= content.keys()
        if not content and self._action is not None and self._action is not Accept:
            return self._action()
        missing = [name for name in required_names(schema) if name not in content and not _has_default(fields, name)]
        if missing or not (content or self._action):
            return self._failed(self._missing(message, missing, list(fields)))
        return self._checked(message, schema, fields, content)

    def _checked(self, message: str, schema: dict[str, Any], fields: questions.Fields, content: dict[str, Any]) -> Any:
        validator = key_values.checker(schema)
        defaults = {name: member["default"] for name, member in fields.items() if "default" in member}
        problems = [] if validator is None else validator.check({**defaults, **content})
        if not problems:
            return content
        told = "; ".join(schemas.sentence(problem, "value") for problem in problems)
        return self._failed(UsageError(f"an --answer does not fit the question {message[:_SHOWN]!r}: {told}"))

    def _missing(self, message: str, missing: list[str], fields: list[str]) -> UsageError:
        """Return the error that says which answer a question needs."""
        if not missing:
            choice = f", or one of its fields ({', '.join(fields[:_FIELDS])})" if fields else ""
            return UsageError(f"the server asks {message[:_SHOWN]!r}: add --answer accept, decline or cancel{choice}")
        wanted = " ".join(f"--answer {name}=VALUE" for name in missing[:_FIELDS])
        close = nearest(missing[0], self._unused)
        hint = f" (did you mean {missing[0]!r} by {close!r}?)" if close else ""
        return UsageError(f"the server asks {message[:_SHOWN]!r}: add {wanted}{hint}")

    async def _url(self, message: str, params: t.ElicitRequestParams) -> Any:
        if self._asks_without_end():
            return self._failed(_endless())
        url = "" if params.url is UNSET else params.url
        note(f"The server asks you to open a page: {message}")
        note(f"  {url}")
        if self._action is None:
            problem = f"the server asks you to open {url[:_SHOWN]!r}: add --answer accept, decline or cancel"
            return self._failed(UsageError(problem))
        return Decline() if self._action is Accept and not questions.is_web_address(url) else self._action()

    async def _sample(self, params: t.CreateMessageRequestParams) -> str:
        if not self._samples:
            problem = "the server asks a model more often than --sample was given: add another --sample TEXT"
            self._failed(UsageError(problem))
            raise Rejected(problem)
        return self._samples.pop(0)

    def _asks_without_end(self) -> bool:
        self._questions += 1
        return self._questions > MOST_QUESTIONS

    def _failed(self, problem: UsageError) -> Cancel:
        self._problem = self._problem or problem
        return Cancel()


def _endless() -> UsageError:
    return UsageError(f"the server asks more than {MOST_QUESTIONS} questions")


def _has_default(fields: questions.Fields, name: str) -> bool:
    return "default" in fields.get(name, {})


def _split(words: Sequence[str]) -> tuple[list[str], Action | None]:
    """Separate the fields of forms from the action for all other questions."""
    actions = {word for word in words if word in _ACTIONS}
    if len(actions) > 1:
        raise UsageError(f"--answer takes one of accept, decline and cancel, not {' and '.join(sorted(actions))}")
    fields = [word for word in words if word not in _ACTIONS]
    for word in fields:
        if "=" not in word and not word.lstrip().startswith("{"):
            raise UsageError(
                f"--answer {word!r} is none of KEY=VALUE, KEY:=JSON, '{{...}}', accept, decline and cancel"
            )
    return fields, next((_ACTIONS[action] for action in actions), None)

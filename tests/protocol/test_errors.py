"""The exceptions themselves."""

from __future__ import annotations

import copy
import pickle

import pytest
from msgspec import UNSET
from tests.cases import cases

from toolwire.protocol import errors


@cases(
    "error",
    [
        errors.ProtocolError(-32602, "no", {"uri": "a:b"}),
        errors.ProtocolError(-32603, "no"),
        errors.InsufficientScope(["read", "write"], 7),
        errors.CallRefused("later", reason="rate", retry_after=1.5),
        errors.NotSupported("no forms", {"elicitation": {}}),
        errors.UrlRequired("sign in", "https://example.org", "id"),
        errors.ToolFailed("no", [1]),
        errors.Timeout("late"),
    ],
)
def test_an_error_survives_the_way_to_another_process(error: errors.ToolwireError) -> None:
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is type(error)
        assert (str(again), again.args, vars(again)) == (str(error), error.args, vars(error))


def test_data_that_is_absent_stays_absent() -> None:
    assert pickle.loads(pickle.dumps(errors.ProtocolError(1, "no"))).data is UNSET


@cases(("number", "said"), [(0, "0 calls"), (1, "1 call"), (2, "2 calls"), (1_204, "1,204 calls"), (1.0, "1 call")])
def test_numbers_agree_with_their_nouns(number: float, said: str) -> None:
    assert errors.counted(number, "call") == said
    assert errors.counted(0.05, "second") == "0.05 seconds"


@pytest.mark.parametrize(("scopes", "said"), [(["write"], "the scope write"), (["b", "a"], "the scopes a, b")])
def test_scopes_that_are_missing_are_named(scopes: list[str], said: str) -> None:
    assert errors.InsufficientScope(scopes).message == f"This needs {said}"

"""The exceptions themselves."""

from __future__ import annotations

import copy
import pickle

import pytest
from msgspec import UNSET

from toolwire.protocol import errors


@pytest.mark.parametrize(
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

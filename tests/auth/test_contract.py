"""A bearer token as the whole of a client's authorization."""

from __future__ import annotations

import pytest
from tests.cases import cases

from toolwire.auth import Auth, Bearer
from toolwire.auth.contract import as_auth


async def test_a_bearer_token_goes_on_every_request() -> None:
    auth = as_auth("s3cret", "https://h/mcp")
    assert auth is not None
    assert await auth.headers("POST", "https://h/mcp") == {"authorization": "Bearer s3cret"}
    assert await auth.challenged("POST", "https://h/mcp", 401, {}) is False


def test_a_bearer_token_is_not_shown() -> None:
    assert "s3cret" not in repr(Bearer("s3cret"))


@cases("token", ["", "a b", "a\r\nx: y", "tök"])
def test_what_cannot_be_a_token(token: str) -> None:
    with pytest.raises(ValueError, match="visible ASCII"):
        Bearer(token)


def test_what_auth_takes() -> None:
    bearer = Bearer("t")
    assert isinstance(bearer, Auth)
    assert as_auth(bearer, "https://h/mcp") is bearer
    assert as_auth(None, "https://h/mcp") is None
    with pytest.raises(TypeError, match="headers\\(\\) and challenged\\(\\)"):
        as_auth(7, "https://h/mcp")  # type: ignore[arg-type]

"""What lets the inspector in at a server with an address: a token, headers, or somebody who signs in.

The page can change them, and is never told their values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

MAX_HEADERS: Final = 50
MAX_LENGTH: Final = 16 * 1024
# RFC 9110 sections 5.1 and 5.5.
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")
_VALUE: Final = re.compile(r"[\x21-\x7e\x80-\xff]([\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?")


class Credentials:
    """The headers and the token of every request; without a token, `sign_in` is asked when the server wants one."""

    def __init__(self, headers: Mapping[str, str] | None, token: Any, sign_in: Any) -> None:
        self.headers: dict[str, str] = dict(headers or {})
        self._token = token
        self._sign_in = sign_in

    @property
    def auth(self) -> Any:
        """What a client is given as `auth=`."""
        if self._token is not None or any(name.lower() == "authorization" for name in self.headers):
            return self._token
        return self._sign_in

    @property
    def names(self) -> list[str]:
        """The names of all headers that go along, beside those of the protocol."""
        return [*(["Authorization"] if self._token is not None else []), *self.headers]

    def shown(self) -> dict[str, Any]:
        """Tell the page what there is, without the values."""
        return {"token": self._token is not None, "headers": list(self.headers)}

    def change(self, asked: Mapping[str, Any]) -> None:
        """Take what the page sends; `ValueError` for what HTTP cannot carry.

        `token` is a text, or None for none. `headers` are pairs of name and value, all that are to be sent; a value of
        None stays what it was.
        """
        headers = self.headers if "headers" not in asked else self._read(asked["headers"])
        token = self._token
        if "token" in asked:
            token = None if asked["token"] is None else _checked(str(asked["token"]).strip(), "The token")
        self.headers, self._token = headers, token

    def _read(self, pairs: Any) -> dict[str, str]:
        if len(pairs) > MAX_HEADERS:
            raise ValueError(f"At most {MAX_HEADERS} headers can be sent")
        found: dict[str, str] = {}
        for name, value in pairs:
            if not isinstance(name, str) or _NAME.fullmatch(name) is None:
                raise ValueError(f"{str(name)[:100]!r} is not the name of a header")
            if value is None and name not in self.headers:
                raise ValueError(f"The header {name} has no value")
            found[name] = self.headers[name] if value is None else _checked(str(value), f"The header {name}")
        return found


def _checked(value: str, what: str) -> str:
    if len(value) > MAX_LENGTH:
        raise ValueError(f"{what} is longer than {MAX_LENGTH} characters")
    if _VALUE.fullmatch(value) is None:
        raise ValueError(f"{what} is empty, or has characters that cannot be sent")
    return value

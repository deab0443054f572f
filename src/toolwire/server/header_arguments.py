"""The mark that makes an argument travel in a header too (`x-mcp-header`), and its check at registration."""

from __future__ import annotations

from toolwire.protocol import parameter_headers
from toolwire.protocol.errors import ServerError
from toolwire.schemas import Schema


class Header:
    """`Annotated[str, Header("Region")]`: clients repeat this argument in the header `Mcp-Param-Region`."""

    __slots__ = ("token",)

    def __init__(self, token: str) -> None:
        self.token: str = token

    @property
    def __json_schema__(self) -> Schema:
        return {"x-mcp-header": self.token}

    def __repr__(self) -> str:
        return f"Header({self.token!r})"


def header_paths(schema: Schema, what: str) -> dict[str, tuple[str, ...]]:
    """Return the arguments that travel in headers, too. Raise `ServerError` for a mark that clients refuse."""
    try:
        return parameter_headers.header_paths(schema)
    except parameter_headers.BadHeader as error:
        raise ServerError(f"{what}: {error}") from None

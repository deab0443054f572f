"""The URL of a request: server, path from encoded segments, and query.

A value can never change which operation a request is for. It is encoded whole, so that it stays inside its segment.
Values that some servers on the way would decode and read as `.` or `..` are refused, however often they are encoded.
At the end the URL is parsed again: its origin and its segments have to be those that were built.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote, urljoin, urlsplit

from toolwire.http1.url import origin, parse_url
from toolwire.openapi.model import DescriptionError, ServerObject
from toolwire.openapi.request.parameters import Serializer
from toolwire.openapi.request.wire_names import names_of
from toolwire.protocol.errors import ToolError

_EXPRESSION: Final = re.compile(r"\{([^{}]+)\}")
# RFC 3986 section 3.3: what a segment may contain as it is; `%` because a template may be encoded already.
_IN_SEGMENT: Final = "%:@!$&'()*+,;="
_IN_QUERY: Final = "%:@!$&'()*+,;=/?"
_LONE_PERCENT: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
# Servers on the way read these as the end of a segment, some of them after decoding.
_ENDS_OF_SEGMENTS: Final = re.compile(r"[/\\;?#]")
# A value that is still encoded after so many rounds is meant to deceive.
_MAX_ENCODED: Final = 8
#: How long a URL may become. Servers refuse longer ones with a 414 that explains nothing.
MAX_URL: Final = 16_384


# -- Servers ----------------------------------------------------------------------------------------------------------


def server_url(
    servers: tuple[ServerObject, ...],
    *,
    base_url: str | None = None,
    variables: Mapping[str, str] | None = None,
    server: str | None = None,
    where: str = "the description",
) -> str:
    """Return the URL under which an operation is served, without a slash at its end.

    `servers` are those of the operation, else of the path, else of the document. `base_url` wins. `server` chooses by
    name (3.2) or by URL; the first one is used otherwise. `where` names the operation in errors.
    """
    if base_url is not None:
        return _checked_base(base_url, "base_url=", typed=True)
    chosen = _chosen(servers, server, where)
    url = _with_variables(chosen, variables or {}, where)
    try:
        is_relative = not urlsplit(url).scheme
        absolute = urljoin(chosen.document_uri, url) if is_relative else url
    except ValueError:  # Brackets that are not closed, or characters that become a delimiter when they are normalized.
        raise _unusable(url, f"{where}, servers") from None
    if is_relative and urlsplit(chosen.document_uri).scheme not in ("http", "https"):
        raise DescriptionError(
            f"{where}: its server {chosen.url!r} is relative to the address of the description, which is not "
            "one of http. Give base_url="
        )
    return _checked_base(absolute, f"{where}, servers", typed=False)


def check_variables(given: Mapping[str, str], servers: Iterable[ServerObject]) -> None:
    """Raise `DescriptionError` for a variable that no server has: its value would have no effect."""
    if not given:
        return
    known = {name for each in servers for name in _EXPRESSION.findall(each.url)}
    for name in given:
        if name not in known:
            raise DescriptionError(
                f"server_variables has {name[:100]!r}, and the URL of no server has that variable; there are: "
                f"{', '.join(sorted(known)[:10]) or 'none'}"
            )


def _chosen(servers: tuple[ServerObject, ...], wanted: str | None, where: str) -> ServerObject:
    for each in servers:
        if wanted is None or wanted in (each.name, each.url):
            return each
    known = ", ".join(repr(each.name or each.url) for each in servers[:5]) or "none"
    asked = "no server" if wanted is None else f"no server {wanted!r}, but {known}"
    raise DescriptionError(f"{where}: it has {asked}. Give base_url=")


def _with_variables(server: ServerObject, given: Mapping[str, str], where: str) -> str:
    def value(found: re.Match[str]) -> str:
        name = found[1]
        variable = server.variables.get(name)
        text = given.get(name, None if variable is None else variable.default)
        if text is None:
            raise DescriptionError(
                f"{where}: the server {server.url!r} does not say what {{{name}}} is. Give it in server_variables="
            )
        if name in given and variable is not None and variable.enum and text not in variable.enum:
            raise DescriptionError(
                f"{where}: the server variable {name!r} is one of {', '.join(variable.enum[:20])}, not {text!r}"
            )
        return text

    return _EXPRESSION.sub(value, server.url)


def _checked_base(url: str, where: str, *, typed: bool) -> str:
    """Return the URL of a server without a slash at its end.

    `typed`: a person gave it, and not a document.
    """
    try:
        parts = urlsplit(url)
        parse_url(url)
    except ValueError:
        raise _unusable(url, where) from None
    if parts.query or parts.fragment:
        raise DescriptionError(f"{where}: the URL of a server has no query and no fragment. Give base_url=")
    if "@" in parts.netloc and not typed:
        raise DescriptionError(f"{where}: the URL of the server has a password in it. Give base_url= and credentials=")
    if _CONTROL.search(url) or any(_is_dots(each) for each in parts.path.split("/")):
        raise DescriptionError(f"{where}: {url[:200]!r} cannot be requested as it is. Give base_url=")
    path = quote(parts.path.rstrip("/"), safe=_IN_SEGMENT + "/")
    return f"{parts.scheme}://{parts.netloc}{path}"


def _unusable(url: str, where: str) -> DescriptionError:
    return DescriptionError(f"{where}: {url[:200]!r} is not a URL of http or https. Give base_url=")


def _is_dots(segment: str) -> bool:
    return unquote(segment) in (".", "..")


def _becomes_dots(segment: str) -> bool:
    """Return whether a segment is `.` or `..` after decoding, once or more often."""
    for _ in range(_MAX_ENCODED):
        decoded = unquote(segment)
        if decoded in (".", "..") or decoded == segment:
            return decoded in (".", "..")
        segment = decoded
    return True


# -- Paths ------------------------------------------------------------------------------------------------------------


class _Expression(NamedTuple):
    argument: str
    serialize: Serializer


class UrlBuilder:
    """The URL of one operation, compiled from its path template.

    `path` holds the serializers of its path parameters with the names of their arguments, by the name of the parameter.
    """

    def __init__(self, base: str, template: str, path: Mapping[str, tuple[str, Serializer]], where: str) -> None:
        # Some descriptions put a fixed query, or a fragment that tells operations apart, into the path.
        template, _, _ = template.partition("#")
        template, _, query = template.partition("?")
        self.origin: str = origin(base)
        self._base = base
        self._start = f"{base}/" if not template.startswith("/") else base
        self._parts = _compiled(template, path, _IN_SEGMENT + "/", where)
        self._query_parts = _compiled(query, path, _IN_QUERY, where)
        self.query_names: tuple[str, ...] = tuple(names_of(query.split("&"))) if query else ()
        """The names in the query of the template."""
        self.has_open_query: bool = any(isinstance(each, _Expression) for each in self._query_parts)
        """Whether arguments stand in the query of the template."""
        self._slashes = urlsplit(self._start).path.count("/") + template.count("/")
        split = urlsplit(base)
        self._scheme, self._netloc = split.scheme, split.netloc

    def build(self, arguments: Mapping[str, Any], query: str) -> str:
        """Build the URL for arguments, and check that it is what was meant.

        The query of the template comes first.
        """
        path = self._filled(self._parts, arguments)
        own = self.fill_query(arguments)
        query = f"{own}&{query}" if own and query else own or query
        url = f"{self._start}{path}?{query}" if query else self._start + path
        if len(url) > MAX_URL:
            raise ToolError(f"The arguments make a URL of {len(url)} characters, and {MAX_URL} are the most")
        parsed = urlsplit(url)
        if (
            parsed.scheme != self._scheme
            or parsed.netloc != self._netloc
            or parsed.path.count("/") != self._slashes
            or not url.startswith(f"{self._scheme}://{self._netloc}{parsed.path}")
            or parsed.query != query
            or parsed.fragment
        ):
            raise ToolError("The arguments do not make a URL of this operation")
        return url

    def fill_query(self, arguments: Mapping[str, Any]) -> str:
        """Return the query of the template with arguments."""
        return self._filled(self._query_parts, arguments) if self._query_parts else ""

    def _filled(self, parts: tuple[str | _Expression, ...], arguments: Mapping[str, Any]) -> str:
        if len(parts) == 1 and isinstance(parts[0], str):
            return parts[0]
        texts: list[str] = []
        for part in parts:
            if isinstance(part, str):
                texts.append(part)
                continue
            value = arguments.get(part.argument)
            text = part.serialize(value)
            _check_value(part.argument, value, text)
            texts.append(text)
        filled = "".join(texts)
        if ("." in filled or "%2" in filled) and any(_becomes_dots(each) for each in filled.split("/")):
            raise ToolError("The arguments make '.' or '..' a segment of the path, which would be another path")
        return filled


def _compiled(
    template: str, path: Mapping[str, tuple[str, Serializer]], safe: str, where: str
) -> tuple[str | _Expression, ...]:
    parts: list[str | _Expression] = []
    # With one group, the pieces are literals and names in turn.
    for index, piece in enumerate(_EXPRESSION.split(template)):
        if index % 2:
            if piece not in path:
                raise DescriptionError(
                    f"{where}: {{{piece}}} of the path {template!r} is not a parameter of the operation"
                )
            parts.append(_Expression(*path[piece]))
        elif piece:
            # A `%` that begins no triplet would make one together with the value behind it.
            parts.append(quote(_LONE_PERCENT.sub("%25", piece), safe=safe))
    return tuple(parts)


def _check_value(argument: str, value: Any, text: str) -> None:
    """Refuse a value that would lead to another path, here or at a proxy."""
    if not text:
        raise ToolError(f"{argument!r} is a part of the path and must not be empty")
    _check_parts(argument, value)


def _check_parts(argument: str, value: Any) -> None:
    if isinstance(value, str):
        if not value.isalnum():
            _check_text(argument, value)
    elif isinstance(value, dict):
        for name, each in value.items():
            _check_text(argument, name)
            _check_parts(argument, each)
    elif isinstance(value, list):
        for each in value:
            _check_parts(argument, each)


def _check_text(argument: str, value: str) -> None:
    for _ in range(_MAX_ENCODED):
        if _CONTROL.search(value) is not None:
            raise ToolError(f"{argument!r} is a part of the path and must not have control characters")
        if "." in value and any(each in (".", "..") for each in _ENDS_OF_SEGMENTS.split(value)):
            raise ToolError(f"{argument!r} is a part of the path and must not have the segments '.' or '..'")
        decoded = unquote(value) if "%" in value else value
        if decoded == value:
            return
        value = decoded
    raise ToolError(f"{argument!r} is encoded too many times")


def asserted_origin(url: str, origins: frozenset[str], error: Callable[[str], Exception] = ToolError) -> str:
    """Return the origin of a URL; raise where it is not a permitted one."""
    found = origin(url)
    if found not in origins:
        raise error(f"{found} is not an origin that this API may be called at")
    return found

"""Requests from arguments: everything that a description says about a request, compiled once for each operation."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import unquote_plus

from toolwire.openapi.access.signing import OutgoingRequest
from toolwire.openapi.model import OperationObject, ParameterObject, ToolDefinition
from toolwire.openapi.request.parameters import (
    IGNORED_HEADERS,
    Serializer,
    cookie_serializer,
    header_serializer,
    header_value,
    is_json,
    path_serializer,
    query_serializer,
    query_string_serializer,
)
from toolwire.openapi.request.request_bodies import BodyWriter, body_writer, form_writer
from toolwire.openapi.request.request_urls import UrlBuilder
from toolwire.protocol.errors import ToolError

_ANYTHING: Final = "*/*;q=0.1"
_MEDIA_TYPE: Final = re.compile(r"[\x20-\x2b\x2d-\x7e]{1,200}")


class RequestBuilder:
    """The requests of one operation. `base` is the URL of its server (see `request_urls.server_url`)."""

    def __init__(self, definition: ToolDefinition, base: str) -> None:
        operation = definition.operation
        path: dict[str, tuple[str, Serializer]] = {}
        self._query: list[tuple[str, Serializer]] = []
        self._headers: list[tuple[str, str, Serializer]] = []
        self._cookies: list[tuple[str, Serializer]] = []
        # Parameters with a fixed value are arguments that nobody can give.
        self._values = {_fixed_name(parameter): value for parameter, value in definition.fixed}
        self._values |= {each.name: value for each, value in definition.fixed_body}
        named = [(each.name, each.parameter) for each in definition.arguments if each.parameter is not None]
        written = (*named, *((_fixed_name(each), each) for each, _ in definition.fixed))
        for argument, parameter in written:
            match parameter.location:
                case "path":
                    path[parameter.name] = (argument, path_serializer(parameter))
                case "query":
                    write = query_serializer(parameter)
                    self._query.append((argument, _written(argument, write) if parameter.required else write))
                case "querystring":
                    self._query.append((argument, _query_string(parameter)))
                case "header":
                    name = header_value(parameter.name, parameter.name).lower()
                    if name not in IGNORED_HEADERS:
                        self._headers.append((argument, name, header_serializer(parameter)))
                case "cookie":
                    write = cookie_serializer(parameter)
                    self._cookies.append((argument, _written(argument, write) if parameter.required else write))
        self._operation = operation
        self._parameters = dict(written)
        self._method = operation.method
        self._url = UrlBuilder(base, operation.path, path, operation.label)
        self.origin: str = self._url.origin
        self._accept = {"accept": accepted(operation)}
        self._body: BodyWriter | None = None
        if definition.media is not None and operation.request_body is not None:
            self._body = body_writer(
                definition.media,
                (*definition.arguments, *(each for each, _ in definition.fixed_body)),
                operation.request_body.required,
            )

    def build(self, arguments: dict[str, Any]) -> OutgoingRequest:
        """Return the request for validated arguments; raise `ToolError` for what cannot be sent."""
        if self._values:
            arguments = {**arguments, **self._values}
        try:
            query = [self._pairs(name, arguments[name], write, "&") for name, write in self._query if name in arguments]
            url = self._url.build(arguments, "&".join([each for each in query if each]))
            headers = self._accept.copy()
            for name, header, write in self._headers:
                if name in arguments:
                    headers[header] = write(arguments[name])
            if self._cookies:
                cookies = [
                    self._pairs(name, arguments[name], write, "; ")
                    for name, write in self._cookies
                    if name in arguments
                ]
                if written := "; ".join([each for each in cookies if each]):
                    headers["cookie"] = written
            body = None if self._body is None else self._body(arguments)
        except UnicodeEncodeError:
            raise ToolError("An argument has half of a surrogate pair, which is no character") from None
        if body is None:
            return OutgoingRequest(method=self._method, url=url, headers=headers)
        headers["content-type"] = body.content_type
        return OutgoingRequest(method=self._method, url=url, headers=headers, body=body.data)

    def _pairs(self, argument: str, value: Any, write: Serializer, separator: str) -> str:
        """Write a parameter. Raise `ToolError` where a member of an object is another parameter.

        The members of an object may be written as pairs of their own. Then one could be taken for a parameter that
        nobody can give, or that was judged.
        """
        written = write(value)
        if isinstance(value, dict):
            others = _other_names(self._parameters[argument], self._parameters.values(), self._operation.path)
            if not others.isdisjoint(_names(written.split(separator))):
                raise ToolError(f"{argument!r} must not have a member with the name of another parameter")
        return written


def _other_names(parameter: ParameterObject, parameters: Iterable[ParameterObject], path: str) -> frozenset[str]:
    """Return the names that are taken in the place of a parameter. The path may have some in its query."""
    names = _names(each.name for each in parameters if each.location == parameter.location)
    if parameter.location == "query":
        names |= _names(path.partition("#")[0].partition("?")[2].split("&"))
    return names - _names([parameter.name])


def _names(pairs: Iterable[str]) -> frozenset[str]:
    """Return the names in pairs. `name[]` and `NAME` are `name` for many servers."""
    names = (unquote_plus(pair.partition("=")[0]).partition("[")[0].strip().casefold() for pair in pairs)
    return frozenset(each for each in names if each)


def _fixed_name(parameter: ParameterObject) -> str:
    """Name a parameter as no argument is named."""
    return f"\0{parameter.location} {parameter.name}"


def _written(argument: str, write: Serializer) -> Serializer:
    """Return the serializer of a required parameter, which refuses a value that it cannot write.

    RFC 6570 section 2.3: a list or an object without items is undefined, and is left out. `name=` would be a list with
    an empty text, unless the description has `allowEmptyValue`.
    """

    def checked(value: Any) -> str:
        text = write(value)
        if not text:
            raise ToolError(f"{argument!r} is required, and a request cannot carry it without items: give one or more")
        return text

    return checked


def _query_string(parameter: ParameterObject) -> Serializer:
    return query_string_serializer(parameter, form_writer(parameter.encoding))


def accepted(operation: OperationObject) -> str:
    """Return the header Accept: what the description says of successes, JSON first, and anything if need be."""
    known: dict[str, None] = {}
    for status, response in operation.responses.items():
        if status.startswith("2") or status == "default":
            # Some documents have other texts in place of a media type.
            known |= {each.media_type: None for each in response.content if _MEDIA_TYPE.fullmatch(each.media_type)}
    wanted = [each for each in known if is_json(each)]
    others = [each for each in known if not is_json(each) and "*" not in each]
    written = [*(wanted or ["application/json"]), *(f"{each};q=0.5" for each in others), _ANYTHING]
    return header_value("accept", ", ".join(written[:20]))

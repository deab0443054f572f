"""Build requests from arguments, compiled once for each operation."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

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
from toolwire.openapi.request.request_bodies import BodyWriter, body_owner, body_writer, form_writer, member_names
from toolwire.openapi.request.request_urls import UrlBuilder
from toolwire.openapi.request.wire_names import OpenValue, Owner, WireNames, is_open, names_in_query, names_of
from toolwire.protocol.errors import ToolError
from toolwire.server.forwarded_headers import spell_header

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
        # Parameters with a fixed value are arguments that no caller can give.
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
                    self._query.append((argument, _query_string(parameter, definition.reserved)))
                case "header":
                    name = header_value(parameter.name, parameter.name).lower()
                    if spell_header(name) not in IGNORED_HEADERS:
                        self._headers.append((argument, name, header_serializer(parameter)))
                case "cookie":
                    write = cookie_serializer(parameter)
                    self._cookies.append((argument, _written(argument, write) if parameter.required else write))
        self._parameters = dict(written)
        self._fields, self._cookie_names, self._matrix_names = _wire_names(definition, self._parameters.values())
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
                self._fields,
            )

    def build(self, arguments: dict[str, Any]) -> OutgoingRequest:
        """Return the request for validated arguments; raise `ToolError` for what cannot be sent."""
        if self._values:
            arguments = {**arguments, **self._values}
        try:
            query = [
                (name, arguments[name], write(arguments[name])) for name, write in self._query if name in arguments
            ]
            self._check_query(query, arguments)
            if self._matrix_names is not None:
                self._check_matrix(self._matrix_names, arguments)
            url = self._url.build(arguments, "&".join([text for _, _, text in query if text]))
            headers = self._accept.copy()
            for name, header, write in self._headers:
                if name in arguments:
                    headers[header] = write(arguments[name])
            if self._cookies:
                cookies = [
                    (name, arguments[name], write(arguments[name]))
                    for name, write in self._cookies
                    if name in arguments
                ]
                open_ones = [each for name, value, text in cookies for each in self._open(name, value, text, "; ")]
                if open_ones:
                    self._cookie_names.check(open_ones)
                if written := "; ".join([text for _, _, text in cookies if text]):
                    headers["cookie"] = written
            body = None if self._body is None else self._body(arguments)
        except UnicodeEncodeError:
            raise ToolError("An argument has half of a surrogate pair, which is not a character") from None
        if body is None:
            return OutgoingRequest(method=self._method, url=url, headers=headers)
        headers["content-type"] = body.content_type
        return OutgoingRequest(method=self._method, url=url, headers=headers, body=body.data)

    def _check_query(self, query: list[tuple[str, Any, str]], arguments: Mapping[str, Any]) -> None:
        """Raise `ToolError` if a member of an object would become another query parameter."""
        open_ones = [each for name, value, text in query for each in self._open(name, value, text, "&")]
        if self._url.has_open_query:
            # Values of path parameters stand in the query of the template.
            named = Counter(names_in_query(self._url.fill_query(arguments))) - Counter(self._url.query_names)
            open_ones.append(OpenValue("", "the path", list(named.elements())))
        if open_ones:
            self._fields.check(open_ones)

    def _check_matrix(self, names: WireNames, arguments: Mapping[str, Any]) -> None:
        """Raise `ToolError` if a member of an object would become another path parameter."""
        names.check(
            [
                OpenValue(_owner(parameter), name, list(arguments[name]))
                for name, parameter in self._parameters.items()
                if _is_matrix(parameter) and parameter.explode and isinstance(arguments.get(name), dict)
            ]
        )

    def _open(self, argument: str, value: Any, text: str, separator: str) -> Iterator[OpenValue]:
        """Yield the names that a parameter is written under, where they come from its value."""
        parameter = self._parameters[argument]
        if parameter.location == "querystring":
            yield OpenValue(_owner(parameter), argument, names_in_query(text))
        elif parameter.content is None and is_open(value, parameter.style, parameter.explode):
            names = list(names_of(text.split(separator)))
            yield OpenValue(_owner(parameter), argument, names, parameter.style == "deepObject")


def _wire_names(
    definition: ToolDefinition, parameters: Iterable[ParameterObject]
) -> tuple[WireNames, WireNames, WireNames | None]:
    """Return the names in query and forms, in cookies, and in the path.

    Many frameworks read the query and a form together.
    """
    known = list(parameters)
    template = definition.operation.path.partition("#")[0].partition("?")[2]
    fields = [(_owner(each), each.name) for each in known if each.location == "query"]
    fields += [("path", name) for name in names_of(template.split("&"))]
    fields += [(body_owner(name), name) for name in member_names(definition)]
    fields += [("reserved", name) for location, name in definition.reserved if location == "query"]
    cookies = [(_owner(each), each.name) for each in known if each.location == "cookie"]
    cookies += [("reserved", name) for location, name in definition.reserved if location == "cookie"]
    matrix = [each for each in known if _is_matrix(each)]
    return (
        WireNames(fields),
        WireNames(cookies),
        WireNames([(_owner(each), each.name) for each in matrix]) if len(matrix) > 1 else None,
    )


def _is_matrix(parameter: ParameterObject) -> bool:
    return parameter.location == "path" and parameter.style == "matrix" and parameter.content is None


def _owner(parameter: ParameterObject) -> Owner:
    return f"{parameter.location} {parameter.name}"


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


def _query_string(parameter: ParameterObject, reserved: Iterable[tuple[str, str]]) -> Serializer:
    names = WireNames((body_owner(name), name) for location, name in reserved if location == "querystring")
    return query_string_serializer(parameter, form_writer(parameter.encoding, names))


def accepted(operation: OperationObject) -> str:
    """Return the header Accept: the media types of successes, JSON first."""
    known: dict[str, None] = {}
    for status, response in operation.responses.items():
        if status.startswith("2") or status == "default":
            # Some documents have other texts in place of a media type.
            known |= {each.media_type: None for each in response.content if _MEDIA_TYPE.fullmatch(each.media_type)}
    wanted = [each for each in known if is_json(each)]
    others = [each for each in known if not is_json(each) and "*" not in each]
    written = [*(wanted or ["application/json"]), *(f"{each};q=0.5" for each in others), _ANYTHING]
    return header_value("accept", ", ".join(written[:20]))

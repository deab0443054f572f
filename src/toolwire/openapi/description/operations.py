"""Read the operations of a description, or give the reason why not."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast
from urllib.parse import unquote

from toolwire.openapi.model import (
    ApiDescription,
    DescriptionError,
    EncodingObject,
    LeftOutOperation,
    Location,
    MediaTypeObject,
    Node,
    OperationObject,
    ParameterObject,
    RequestBodyObject,
    ResponseObject,
    SecurityRequirement,
    ServerObject,
    ServerVariable,
)

# OpenAPI 3.x, Path Item Object: the members that are operations.
_METHODS: Final = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
_OTHER_MEMBERS: Final = frozenset(("$ref", "summary", "description", "servers", "parameters", "additionalOperations"))
# RFC 9110 section 5.6.2: names of methods and of headers.
_END_OF_PATH: Final = re.compile("[?#]")
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")
_LOCATIONS: Final = ("path", "query", "querystring", "header", "cookie")
# OpenAPI 3.x, Parameter Object, style: the defaults by location; `form` for the rest.
_STYLES: Final = {"path": "simple", "header": "simple"}
# No API has more. The limit keeps a hostile description from filling the memory.
MAX_OPERATIONS: Final = 50_000
_MAX_PARENTS: Final = 16


def operations_of(description: ApiDescription) -> list[OperationObject | LeftOutOperation]:
    """Read every operation under `paths`, in the order of the document.

    Webhooks and callbacks are not operations.
    """
    return list(_Operations(description).read())


def root_servers(description: ApiDescription) -> tuple[ServerObject, ...]:
    """Return the servers of the whole API: those of the root document."""
    root = Node(description.root.root, description.root)
    # OpenAPI 3.x, OpenAPI Object, servers: none means one with the url "/".
    return _servers_at(root) or (ServerObject(url="/", document_uri=description.root.retrieved_from),)


class _Operations:
    def __init__(self, description: ApiDescription) -> None:
        self._description = description
        root = description.root
        self._root = Node(root.root, root)
        self._servers = root_servers(description)
        self._security = _security_at(self._root) or ()
        self._parents = _parents_of_tags(self._root)

    def read(self) -> Iterator[OperationObject | LeftOutOperation]:
        paths = _object(self._root, "paths")
        if paths is None:  # OpenAPI 3.1: a description of components or webhooks alone
            return
        count = 0
        for path in paths.value:
            if not isinstance(path, str) or path.startswith("x-"):
                continue
            for operation in self._path_item(path, paths.at(path)):
                count += 1
                if count > MAX_OPERATIONS:
                    raise DescriptionError(
                        f"{self._root.document.place('/paths')}: the description has more than {MAX_OPERATIONS:,} "
                        "operations. Remove those that are not needed, for instance by an overlay"
                    )
                yield operation

    # -- Path items ----------------------------------------------------------------------------------------------------

    def _path_item(self, path: str, node: Node) -> Iterator[OperationObject | LeftOutOperation]:
        try:
            item = self._whole_path_item(node)
        except DescriptionError as error:
            yield LeftOutOperation(method="*", path=path, reason=str(error))
            return
        for method, operation, problem in self._operations_at(item):
            try:
                if problem is None:
                    yield self._operation(method, path, item, operation)
                    continue
            except DescriptionError as error:
                problem = str(error)
            yield LeftOutOperation(method=method, path=path, operation_id=_operation_id(operation), reason=problem)

    def _whole_path_item(self, node: Node) -> dict[str, Node]:
        """Return the members of a path item.

        Those beside a `$ref` win over those of its target.
        """
        members: dict[str, Node] = {}
        if isinstance(node.value, dict) and isinstance(node.value.get("$ref"), str):
            target = self._description.resolve(node)
            if not isinstance(target.value, dict):
                raise _not_an_object(target, "a path item")
            members = {name: target.at(name) for name in target.value}
        elif node.value is not None and not isinstance(node.value, dict):
            raise _not_an_object(node, "a path item")
        own = {name: node.at(name) for name in node.value or () if name != "$ref"}
        return {**members, **own}

    def _operations_at(self, item: dict[str, Node]) -> Iterator[tuple[str, Node, str | None]]:
        """Yield method and node, with a reason if it is not an operation here."""
        for name, node in item.items():
            if name in _METHODS:
                yield name.upper(), node, None
            elif name == "query":
                yield "QUERY", node, _older_than_query(node)
            elif name == "additionalOperations" and isinstance(node.value, dict):
                # OpenAPI 3.2, Path Item Object: the name is the method with the capitalization that is sent.
                for method in node.value:
                    yield str(method), node.at(method), _problem_of_method(str(method), node.at(method))
            elif name not in _OTHER_MEMBERS and isinstance(node.value, dict) and "responses" in node.value:
                remedy = "Write it under additionalOperations (OpenAPI 3.2)"
                yield name.upper(), node, f"{node.place}: {name!r} is not a method of OpenAPI. {remedy}"

    # -- Operations ----------------------------------------------------------------------------------------------------

    def _operation(self, method: str, path: str, item: dict[str, Node], node: Node) -> OperationObject:
        if not isinstance(node.value, dict):
            raise _not_an_object(node, "an operation")
        if any(unquote(each) in (".", "..") for each in _END_OF_PATH.split(path, maxsplit=1)[0].split("/")):
            # It could leave the address that the operator gave in base_url=.
            raise _wrong(node, f"the path {path[:200]!r} has the segment '.' or '..', which would be another path")
        body = _object(node, "requestBody")
        responses = _object(node, "responses")
        security = _security_at(node)
        warnings: list[str] = []
        return OperationObject(
            method=method,
            path=path,
            operation_id=_operation_id(node),
            summary=_text(node, "summary"),
            description=_text(node, "description"),
            tags=self._tags(node),
            parameters=self._parameters(item, node, warnings),
            request_body=None if body is None else self._request_body(body),
            responses={} if responses is None else dict(self._responses(responses)),
            servers=_servers_at(node) or _servers_of_path(item) or self._servers,
            security=self._security if security is None else security,
            deprecated=node.value.get("deprecated") is True,
            extensions={name: value for name, value in node.value.items() if str(name).startswith("x-")},
            place=node.label,
            warnings=tuple(warnings),
        )

    def _tags(self, node: Node) -> tuple[str, ...]:
        """Return the tags of an operation, and the tags above them (3.2, Tag Object, parent)."""
        written = node.value.get("tags")
        tags = [tag for tag in written if isinstance(tag, str)] if isinstance(written, list) else []
        for tag in tags[:]:
            parent = self._parents.get(tag)
            for _ in range(_MAX_PARENTS):
                if parent is None or parent in tags:
                    break
                tags.append(parent)
                parent = self._parents.get(parent)
        return tuple(dict.fromkeys(tags))

    def _parameters(self, item: dict[str, Node], node: Node, warnings: list[str]) -> tuple[ParameterObject, ...]:
        """Read the parameters.

        Those of the operation replace those of the path with the same name and location.
        """
        parameters: dict[tuple[str, str], ParameterObject] = {}
        shared = item.get("parameters")
        own = node.at("parameters") if node.value.get("parameters") is not None else None
        for listed in (shared, own):
            if listed is None or listed.value is None:
                continue
            if not isinstance(listed.value, list):
                raise _wrong(listed, "parameters is a list")
            here: set[tuple[str, str]] = set()
            for index in range(len(listed.value)):
                resolved = self._description.resolve(listed.at(index))
                if _is_nameless(resolved.value):
                    warnings.append(f"{listed.at(index).label}: a parameter without a name is left out")
                    continue
                parameter = self._parameter(resolved)
                # RFC 9110 section 5.1: names of headers are the same in upper and lower case.
                name = parameter.name.lower() if parameter.location == "header" else parameter.name
                key = (name, parameter.location)
                if key in here and parameters[key] != parameter:
                    warnings.append(
                        f"{listed.at(index).label}: the {key[1]} parameter {parameter.name!r} exists twice, "
                        "and the last one is used"
                    )
                here.add(key)
                parameters[key] = parameter
        return tuple(parameters.values())

    def _parameter(self, node: Node) -> ParameterObject:
        if not isinstance(node.value, dict):
            raise _not_an_object(node, "a parameter")
        name, location = node.value.get("name"), node.value.get("in")
        if not isinstance(name, str) or not name:
            raise _wrong(node, "a parameter has a name")
        if location not in _LOCATIONS:
            raise _wrong(node, f"the parameter {name!r} has in: {location!r}, which is none of {', '.join(_LOCATIONS)}")
        if location == "header" and _TOKEN.fullmatch(name) is None:
            raise _wrong(node, f"{name[:40]!r} cannot be the name of a header")
        return self._parameter_or_header(node, name, cast("Location", location))

    def _parameter_or_header(self, node: Node, name: str, location: Location) -> ParameterObject:
        value = node.value
        style = value.get("style")
        style = style if isinstance(style, str) else _STYLES.get(location, "form")
        explode = value.get("explode")
        schema, media = _schema(node, "schema"), None
        if (content := _object(node, "content")) is not None and content.value:
            # OpenAPI 3.x, Parameter Object, content: the map has one entry.
            media = self._media_type(content, str(next(iter(content.value))))
            schema = media.schema
        return ParameterObject(
            name=name,
            location=location,
            required=location == "path" or value.get("required") is True,
            schema=schema,
            style=style,
            explode=explode if isinstance(explode, bool) else style in ("form", "cookie"),
            allow_reserved=value.get("allowReserved") is True,
            allow_empty_value=value.get("allowEmptyValue") is True,
            content=None if media is None else media.media_type,
            encoding={} if media is None else media.encoding,
            description=_text(node, "description"),
            deprecated=value.get("deprecated") is True,
        )

    # -- Bodies --------------------------------------------------------------------------------------------------------

    def _request_body(self, node: Node) -> RequestBodyObject:
        node = self._description.resolve(node)
        if not isinstance(node.value, dict):
            raise _not_an_object(node, "a request body")
        return RequestBodyObject(
            content=self._content(node),
            required=node.value.get("required") is True,
            description=_text(node, "description"),
        )

    def _content(self, node: Node) -> tuple[MediaTypeObject, ...]:
        content = _object(node, "content")
        return () if content is None else tuple(self._media_type(content, str(name)) for name in content.value)

    def _media_type(self, content: Node, name: str) -> MediaTypeObject:
        # OpenAPI 3.2: a Media Type Object may be a reference to one under components.
        node = self._description.resolve(content.at(name))
        # Some documents name no type.
        name = name.strip() or "application/json"
        if node.value is None:
            return MediaTypeObject(media_type=name)
        if not isinstance(node.value, dict):
            raise _not_an_object(node, "a media type")
        encoding, prefix, item = self._encodings(node)
        return MediaTypeObject(
            media_type=name,
            schema=_schema(node, "schema"),
            item_schema=_schema(node, "itemSchema"),
            encoding=encoding,
            prefix_encoding=prefix,
            item_encoding=item,
        )

    def _encodings(
        self, node: Node
    ) -> tuple[dict[str, EncodingObject], tuple[EncodingObject, ...], EncodingObject | None]:
        """Read `encoding`, `prefixEncoding` and `itemEncoding` of a Media Type Object or an Encoding Object."""
        by_name = _object(node, "encoding")
        prefix = node.value.get("prefixEncoding")
        item = _object(node, "itemEncoding")
        return (
            {} if by_name is None else {str(name): self._encoding(by_name.at(name)) for name in by_name.value},
            tuple(self._encoding(node.at("prefixEncoding").at(index)) for index in range(len(prefix)))
            if isinstance(prefix, list)
            else (),
            None if item is None else self._encoding(item),
        )

    def _encoding(self, node: Node) -> EncodingObject:
        if not isinstance(node.value, dict):
            raise _not_an_object(node, "an encoding")
        value = node.value
        encoding, prefix, item = self._encodings(node)
        return EncodingObject(
            content_type=_text(node, "contentType") or None,
            headers=self._headers(node),
            style=_text(node, "style") or None,
            explode=_switch(value.get("explode")),
            allow_reserved=_switch(value.get("allowReserved")),
            encoding=encoding,
            prefix_encoding=prefix,
            item_encoding=item,
        )

    def _headers(self, node: Node) -> dict[str, ParameterObject]:
        headers = _object(node, "headers")
        if headers is None:
            return {}
        read = {str(name): self._description.resolve(headers.at(name)) for name in headers.value}
        return {
            name: self._parameter_or_header(header, name, "header")
            for name, header in read.items()
            if isinstance(header.value, dict)
        }

    def _responses(self, responses: Node) -> Iterator[tuple[str, ResponseObject]]:
        for name in responses.value:
            status = str(name).upper() if str(name) != "default" else "default"
            if status.startswith("X-"):
                continue
            node = self._description.resolve(responses.at(name))
            if not isinstance(node.value, dict):
                raise _not_an_object(node, "a response")
            links = _object(node, "links")
            yield (
                status,
                ResponseObject(
                    status=status,
                    content=self._content(node),
                    headers=self._headers(node),
                    links={}
                    if links is None
                    else {str(key): self._description.resolve(links.at(key)).value for key in links.value},
                    description=_text(node, "description"),
                ),
            )


# -- Servers -----------------------------------------------------------------------------------------------------------


def _servers_of_path(item: dict[str, Node]) -> tuple[ServerObject, ...]:
    servers = item.get("servers")
    return () if servers is None or servers.value is None else _server_list(servers)


def _servers_at(node: Node) -> tuple[ServerObject, ...]:
    return _server_list(node.at("servers")) if node.value.get("servers") is not None else ()


def _server_list(servers: Node) -> tuple[ServerObject, ...]:
    if not isinstance(servers.value, list):
        raise _wrong(servers, "servers is a list")
    return tuple(_server(servers.at(index)) for index in range(len(servers.value)))


def _server(node: Node) -> ServerObject:
    if not isinstance(node.value, dict) or not isinstance(node.value.get("url"), str):
        raise _wrong(node, "a server has a url")
    variables = _object(node, "variables")
    return ServerObject(
        url=node.value["url"],
        document_uri=node.document.retrieved_from,
        variables={} if variables is None else {str(name): _variable(variables.at(name)) for name in variables.value},
        name=_text(node, "name") or None,
        description=_text(node, "description"),
    )


def _variable(node: Node) -> ServerVariable:
    if not isinstance(node.value, dict):
        raise _not_an_object(node, "a variable of a server")
    enum = node.value.get("enum")
    # Some documents write a port as a number.
    return ServerVariable(
        default=str(node.value.get("default", "")),
        enum=tuple(str(value) for value in enum) if isinstance(enum, list) else (),
    )


# -- Small members -----------------------------------------------------------------------------------------------------


def _is_nameless(parameter: Any) -> bool:
    """Return whether this is an optional parameter that cannot be sent."""
    is_optional = isinstance(parameter, dict) and parameter.get("required") is not True
    return is_optional and parameter.get("in") != "path" and parameter.get("name") in (None, "")


def _problem_of_method(method: str, node: Node) -> str | None:
    """Return why a member of `additionalOperations` is not an operation, or None."""
    if _TOKEN.fullmatch(method) is None:
        return str(_wrong(node, f"{method[:40]!r} is not a method of HTTP"))
    if method.lower() in (*_METHODS, "query"):
        # OpenAPI 3.2, Path Item Object: a method that has a member of its own must not stand here.
        return str(_wrong(node, f"{method!r} stands under additionalOperations instead of {method.lower()!r}"))
    return None


def _older_than_query(node: Node) -> str | None:
    version = node.document.version
    return None if version == "3.2" else f"{node.place}: QUERY exists since OpenAPI 3.2, and this document is {version}"


def _operation_id(node: Node) -> str | None:
    value = node.value.get("operationId") if isinstance(node.value, dict) else None
    return value.strip() or None if isinstance(value, str) else None


def _security_at(node: Node) -> tuple[SecurityRequirement, ...] | None:
    """Read the alternatives of a security requirement; None where there is no such member."""
    alternatives = node.value.get("security")
    if alternatives is None:
        return None
    if not isinstance(alternatives, list):
        raise _wrong(node.at("security"), "security is a list")
    return tuple(_requirement(each, node) for each in alternatives)


def _requirement(value: Any, node: Node) -> SecurityRequirement:
    if not isinstance(value, Mapping):
        raise _wrong(node.at("security"), "a security requirement is an object")
    return SecurityRequirement(
        {str(name): tuple(str(scope) for scope in scopes or ()) for name, scopes in value.items()}
        if all(scopes is None or isinstance(scopes, list) for scopes in value.values())
        else {str(name): () for name in value}
    )


def _parents_of_tags(root: Node) -> dict[str, str]:
    tags = root.value.get("tags")
    return {
        tag["name"]: tag["parent"]
        for tag in (tags if isinstance(tags, list) else ())
        if isinstance(tag, dict) and isinstance(tag.get("name"), str) and isinstance(tag.get("parent"), str)
    }


def _object(node: Node, key: str) -> Node | None:
    """Return a member that is an object; None where it is missing."""
    value = node.value.get(key)
    if value is None:
        return None
    if not isinstance(value, dict):
        raise _not_an_object(node.at(key), key)
    return node.at(key)


def _schema(node: Node, key: str) -> Node | None:
    return node.at(key) if isinstance(node.value.get(key), (dict, bool)) else None


def _text(node: Node, key: str) -> str:
    value = node.value.get(key)
    return value if isinstance(value, str) else ""


def _switch(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _not_an_object(node: Node, what: str) -> DescriptionError:
    return _wrong(node, f"{what} is an object")


def _wrong(node: Node, rule: str) -> DescriptionError:
    return DescriptionError(f"{node.place}: {rule}. Correct the description, or change this place by an overlay")

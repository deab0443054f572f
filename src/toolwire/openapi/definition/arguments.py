"""Arguments of a tool: the operation's parameters and the members of its body."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any, Final

from msgspec import Struct

from toolwire.openapi.definition.descriptions import plain_text
from toolwire.openapi.definition.json_schemas import JsonSchemas, composed
from toolwire.openapi.definition.names import plain_name
from toolwire.openapi.definition.schema_definitions import target_of
from toolwire.openapi.model import (
    ApiDescription,
    DescriptionError,
    MediaTypeObject,
    Node,
    OperationObject,
    OperationSettings,
    ParameterObject,
    ToolArgument,
)
from toolwire.openapi.request.media_types import body_kind
from toolwire.openapi.request.wire_names import names_in_query, spell
from toolwire.redaction import repr_without
from toolwire.schemas.walking import Schema, listed
from toolwire.server.forwarded_headers import spell_header

#: Bytes that the model hands over: a resource of the server, or the bytes themselves.
UPLOAD_SCHEMA: Final[Schema] = {
    "anyOf": [
        {"type": "string", "contentEncoding": "base64", "description": "The bytes in base64"},
        {
            "type": "object",
            "properties": {"uri": {"type": "string", "description": "The URI of a resource of this server"}},
            "required": ["uri"],
        },
    ]
}

_VARIABLE: Final = re.compile(r"\{([^{}]+)\}")
# Headers that are set by the library, by configuration or by the network, and never by a model.
_OF_THE_LIBRARY: Final = re.compile(
    r"accept|accept-encoding|authorization|proxy-.*|cookie|host|content-(?:type|length|encoding)|connection|keep-alive|te|"
    r"trailer|transfer-encoding|upgrade|expect|user-agent|(?:x-)?idempoten(?:cy|t)(?:[-_].*)?"
)
_OF_THE_NETWORK: Final = re.compile(
    r"via|forwarded|x-forwarded-.*|x-real-ip|"
    r"traceparent|tracestate|baggage|b3|x-b3-.*|uber-trace-id|x-datadog-.*|x-amzn-trace-id|x-cloud-trace-context|"
    r"(?:x-)?(?:request|correlation|trace|span)-?id|(?:x-)?(?:client-)?request-id"
)
# Optional headers that change what a request means, where it goes or how its answer is read: the library sets them, or
# nothing does.
_OF_THE_EXCHANGE: Final = re.compile(
    r"content-.*|if-none-match|if-modified-since|if-range|range|cache-control|pragma|age|date|warning|origin|referer|"
    r"sec-.*|access-control-.*|x-http-method(?:-override)?|x-method-override|x-original-(?:url|host|method)|"
    r"x-rewrite-url|x-host|(?:x-|true-)?(?:client|cluster-client)-ip|x-originating-ip|x-remote-.*|cf-.*|mcp-.*|set-cookie.*"
)
# Words in the names of optional headers and cookies that carry a credential. A model must not know one.
_CREDENTIAL: Final = re.compile(
    r"auth|token|secret|passw|credential|signature|session|csrf|xsrf|jwt|jsession|api[-_]?key|access[-_]?key|(?:^|[-_.])s?sid$"
)
_NEEDED: Final = "Required if the request has a body."
_CHAIN: Final = 20
# Keywords of an object body that flat arguments can say.
_FLAT: Final = frozenset(
    ("type", "properties", "required", "additionalProperties", "description", "default", "deprecated", "minProperties",
     "maxProperties", "format")
)  # fmt: skip
# Keywords that only restrict which members stand together, as long as they name no other members.
_CONDITIONS: Final = ("anyOf", "oneOf", "allOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas")


class ArgumentPlan(Struct, frozen=True, kw_only=True):
    """The arguments of a tool, and the schema of them without definitions."""

    arguments: tuple[ToolArgument, ...]
    schema: Schema
    conditions: tuple[Schema, ...] = ()
    """Rules on several members together. Vendors refuse them in a schema, so a model learns them from the error."""
    fixed: tuple[tuple[ParameterObject, Any], ...] = ()
    """Parameters that are sent with every call, and their values."""
    fixed_body: tuple[tuple[ToolArgument, Any], ...] = ()
    """Members of the body, or the whole of it, that are sent with every call."""
    reserved: tuple[tuple[str, str], ...] = ()
    """Location and name of what no object of an argument may give (see `ToolDefinition`)."""
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return repr_without(self, "fixed", "fixed_body")


class _Candidate(Struct, kw_only=True):
    """A value that a call may have, before it has a name."""

    wanted: str
    place: str
    """`path`, `query`, `querystring`, `header`, `cookie` or `body`."""
    key: str
    """Its place and its name: `path id`, `body name`, `body`."""
    schema: Schema
    required: bool
    parameter: ParameterObject | None = None
    member: str | None = None
    is_needed: bool = False
    """Whether a body without this member is wrong."""
    is_secret: bool = False
    is_upload: bool = False


class ArgumentMaker:
    """Makes the arguments of the operations of one description."""

    def __init__(self, description: ApiDescription, schemas: JsonSchemas, max_description: int) -> None:
        self._description = description
        self._schemas = schemas
        self._max_description = max_description
        self._credentials = _api_keys(description)
        self._credential_spellings = frozenset((place, _spelled(place, name)) for place, name in self._credentials)

    def plan(
        self, operation: OperationObject, media: MediaTypeObject | None, settings: OperationSettings
    ) -> ArgumentPlan:
        """Decide which arguments a tool has and what they are called."""
        warnings: list[str] = []
        fixed: list[tuple[ParameterObject, Any]] = []
        candidates: list[_Candidate] = []
        values = settings.fixed or {}
        parameters = list(self._parameters(operation, warnings))
        fixed_names = {_spelling(each) for each in parameters if each.name in values}
        for parameter in parameters:
            if parameter.name in values:
                fixed.append((parameter, values[parameter.name]))
            elif _spelling(parameter) in fixed_names:
                warnings.append(
                    f"{operation.place}: the parameter {parameter.name!r} is left out: servers may read it as the one "
                    "that has a fixed value"
                )
            elif self._is_asked(parameter, settings.ask or ()):
                candidates.append(self._parameter_candidate(parameter, warnings))
            elif parameter.required and _OF_THE_NETWORK.fullmatch(spell_header(parameter.name)):
                warnings.append(
                    f"{operation.place}: the header {parameter.name!r} is required, and nothing sends it: give its "
                    "value in fixed, or let the model give it by ask, in the settings of the operation"
                )
        conditions: list[Schema] = []
        body = operation.request_body
        if media is not None and body is not None:
            candidates += self._body_candidates(media, body.required, body.description, conditions, warnings)
        asked = {each.parameter.name for each in candidates if each.parameter is not None}
        fixed_body = [each for each in candidates if each.place == "body" and each.wanted in values]
        _check_named(settings, {each.name for each, _ in fixed}, asked, fixed_body)
        if fixed_body:
            candidates = [each for each in candidates if each not in fixed_body]
            # The body is sent with every call, and rules on its members would judge arguments that are not there.
            conditions = []
            for each in candidates:
                each.required = each.required or each.is_needed
        names = _names(candidates, settings.arguments or {})
        if any(names[each.key] != each.member for each in candidates if each.member is not None):
            conditions = []
        if body is not None and not body.required and not fixed_body:
            conditions += _members_together(candidates, names)
        return ArgumentPlan(
            arguments=tuple(
                ToolArgument(
                    name=names[each.key],
                    parameter=each.parameter,
                    member=each.member,
                    is_secret=each.is_secret,
                    is_upload=each.is_upload,
                )
                for each in candidates
            ),
            schema=_schema_of(candidates, names),
            conditions=tuple(conditions),
            fixed=tuple(fixed),
            reserved=tuple(self._reserved(parameters, fixed, candidates, media)),
            fixed_body=tuple(
                # No argument has such a name.
                (ToolArgument(name=f"\0{each.key}", member=each.member), values[each.wanted])
                for each in fixed_body
            ),
            warnings=tuple(warnings),
        )

    # -- Parameters ----------------------------------------------------------------------------------------------------

    def _parameters(self, operation: OperationObject, warnings: list[str]) -> Iterator[ParameterObject]:
        """Yield the parameters.

        Those of the path are the ones that the template names, declared or not.
        """
        in_path = list(dict.fromkeys(_VARIABLE.findall(operation.path)))
        declared = {each.name: each for each in operation.parameters if each.location == "path"}
        for name in in_path:
            if name not in declared:
                warnings.append(f"{operation.place}: the path has {{{name}}}, and no parameter describes it")
            yield declared.get(name) or ParameterObject(
                name=name, location="path", required=True, style="simple", explode=False
            )
        unused = [name for name in declared if name not in in_path]
        warnings += [
            f"{operation.place}: the parameter {name!r} is not in the path, and is left out" for name in unused
        ]
        own = {spell(name) for name in names_in_query(operation.path.partition("#")[0].partition("?")[2])}
        for each in operation.parameters:
            if each.location == "query" and own and spell(each.name) in own:
                warnings.append(
                    f"{operation.place}: the parameter {each.name!r} is left out: the query in the path has its value"
                )
            elif each.location != "path":
                yield each

    def _reserved(
        self,
        parameters: Iterable[ParameterObject],
        fixed: Iterable[tuple[ParameterObject, Any]],
        candidates: Iterable[_Candidate],
        media: MediaTypeObject | None,
    ) -> Iterator[tuple[str, str]]:
        """Yield location and name of what no object of an argument may give."""
        yield from sorted(self._credentials)
        sent = [*(each for each, _ in fixed), *(each.parameter for each in candidates)]
        for parameter in parameters:
            if parameter not in sent:
                yield parameter.location, parameter.name
            elif parameter.location == "querystring" and parameter.schema is not None:
                yield from (("querystring", name) for name in self._member_nodes(parameter.schema))
        is_whole = any(each.place == "body" and each.member is None for each in candidates)
        has_fields = media is not None and body_kind(media.media_type) in ("form", "multipart")
        if is_whole and has_fields and media is not None and media.schema is not None:
            yield from (("body", name) for name in self._member_nodes(media.schema))

    def _is_asked(self, parameter: ParameterObject, asked: Iterable[str]) -> bool:
        """Return whether the model gives the value of a parameter."""
        if parameter.name in asked:
            return True
        if _spelling(parameter) in self._credential_spellings:
            return False
        if parameter.location == "header" and _is_set_elsewhere(parameter.name):
            return False
        if parameter.required:
            return True
        if parameter.location in ("header", "cookie") and _is_not_for_models(parameter.name):
            return False
        return not parameter.deprecated

    def _parameter_candidate(self, parameter: ParameterObject, warnings: list[str]) -> _Candidate:
        schema: Schema = {"type": "string"}
        if parameter.schema is not None:
            converted = self._schemas.convert(parameter.schema)
            warnings += converted.warnings
            schema = converted.schema
        if parameter.allow_empty_value and schema.get("type") not in (None, "string"):
            schema = {"anyOf": [schema, {"const": ""}]}
        return _Candidate(
            wanted=parameter.name,
            place=parameter.location,
            key=f"{parameter.location} {parameter.name}",
            schema=self._described(schema, parameter.description),
            required=parameter.required,
            parameter=parameter,
            is_secret=self._is_secret(parameter.schema),
        )

    def _described(self, schema: Schema, text: str) -> Schema:
        plain = plain_text(text, self._max_description)
        return {**schema, "description": plain} if plain else schema

    # -- The body ------------------------------------------------------------------------------------------------------

    def _body_candidates(
        self, media: MediaTypeObject, required: bool, description: str, conditions: list[Schema], warnings: list[str]
    ) -> list[_Candidate]:
        kind = body_kind(media.media_type)
        node = media.schema if media.schema is not None else media.item_schema
        whole = _Candidate(wanted="body", place="body", key="body", schema={}, required=required)
        if kind == "binary" or (kind == "other" and not media.media_type.startswith("text/") and node is None):
            whole.schema, whole.is_upload = self._described(UPLOAD_SCHEMA, description), True
            return [whole]
        if kind == "text" or node is None:
            whole.schema = self._described({} if kind == "json" else {"type": "string"}, description)
            return [whole]
        converted = self._schemas.convert(node)
        warnings += converted.warnings
        if kind != "other" and media.schema is not None:
            content = self._schemas.content(converted.schema, warnings)
            if self._is_flat(content):
                conditions += [{key: content[key]} for key in _CONDITIONS if key in content]
                return self._member_candidates(content, media.schema, required)
        if media.schema is None:
            whole.schema = self._described({"type": "array", "items": converted.schema}, description)
        elif kind == "other":
            is_binary = self._is_binary(node)
            whole.schema = self._described(UPLOAD_SCHEMA if is_binary else {"type": "string"}, description)
            whole.is_upload = is_binary
        else:
            whole.schema = (
                converted.schema
                if "description" in converted.schema
                else self._described(converted.schema, description)
            )
            whole.is_secret = self._is_secret(node)
        return [whole]

    def _is_flat(self, content: Schema) -> bool:
        """Return whether the members of a body can be arguments: nothing would be lost."""
        if content.get("type", "object") != "object" or not content.get("properties"):
            return False
        if content.get("additionalProperties", False) is not False:
            return False
        if not content.keys() <= _FLAT | set(_CONDITIONS):
            return False
        conditions: Schema = {key: content[key] for key in _CONDITIONS if key in content}
        return self._members_named(conditions).issubset(content["properties"])

    def _members_named(self, schema: Schema) -> set[str]:
        """Collect the members that conditions name. Each definition is read once."""
        names: set[str] = set()
        seen: set[str] = set()
        waiting: list[Any] = [schema]
        while waiting:
            part = waiting.pop()
            if not isinstance(part, dict):
                continue
            if (target := target_of(part)) is not None:
                if target in seen:
                    continue
                seen.add(target)
            content = self._schemas.content(part)
            if content.get("type", "object") != "object":
                return {""}
            names |= {*content.get("properties", ()), *content.get("required", ())}
            waiting += [content[key] for key in ("not", "if", "then", "else") if key in content]
            waiting += listed(content, ("anyOf", "oneOf", "allOf"))
            waiting += content.get("dependentSchemas", {}).values()
            for first, dependent in content.get("dependentRequired", {}).items():
                names |= {first, *dependent}
        return names

    def _member_candidates(self, content: Schema, node: Node, required: bool) -> list[_Candidate]:
        needed = content.get("required", [])
        # A name that is required and not described takes any value.
        members = {**content["properties"], **{name: {} for name in needed if name not in content["properties"]}}
        nodes = self._member_nodes(node)
        found = []
        for name, schema in members.items():
            member = nodes.get(name)
            upload = self._upload(member, schema)
            made = schema if upload is None else upload
            found.append(
                _Candidate(
                    wanted=name,
                    place="body",
                    key=f"body {name}",
                    schema=made if required or name not in needed else _with_note(made),
                    required=required and name in needed,
                    member=name,
                    is_needed=name in needed,
                    is_secret=self._is_secret(member),
                    is_upload=upload is not None,
                )
            )
        return found

    def _member_nodes(self, node: Node) -> dict[str, Node]:
        """Return the described schemas of members, also from the schemas of `allOf`."""
        found: dict[str, Node] = {}
        for part in composed(self._description, node):
            properties = part.value.get("properties")
            if isinstance(properties, dict):
                for name in properties:
                    found.setdefault(str(name), part.at("properties").at(name))
        return found

    # -- What a value is -----------------------------------------------------------------------------------------------

    def _target(self, node: Node) -> Node:
        for _ in range(_CHAIN):
            reference = node.value.get("$ref") if isinstance(node.value, dict) else None
            if not isinstance(reference, str):
                break
            node = self._description.referenced(reference, node.document)[1]
        return node

    def _is_secret(self, node: Node | None) -> bool:
        if node is None:
            return False
        values = (node.value, self._target(node).value)
        return any(
            isinstance(value, dict) and (value.get("format") == "password" or value.get("writeOnly") is True)
            for value in values
        )

    def _upload(self, node: Node | None, schema: Schema) -> Schema | None:
        """Return the upload schema of a body member with bytes, or a list of them.

        None for any other member.
        """
        if node is None:
            return None
        text = {"description": schema["description"]} if "description" in schema else {}
        if self._is_binary(node):
            return {**UPLOAD_SCHEMA, **text}
        target = self._target(node)
        items = target.value.get("items") if isinstance(target.value, dict) else None
        if isinstance(items, dict) and self._is_binary(target.at("items")):
            kept = {key: value for key, value in self._schemas.content(schema).items() if key != "items"}
            return {**kept, "items": UPLOAD_SCHEMA, **text}
        return None

    def _is_binary(self, node: Node) -> bool:
        value = self._target(node).value
        if not isinstance(value, dict) or value.get("type", "string") not in ("string", ["string", "null"], "file"):
            return False
        if value.get("type") == "file" or value.get("format") in ("binary", "byte"):
            return True
        encoding = value.get("contentEncoding")
        media = value.get("contentMediaType")
        # OpenAPI 3.1, Considerations for File Uploads: a media type without an encoding is raw bytes.
        return encoding == "base64" or (
            encoding is None and isinstance(media, str) and not media.startswith("text/") and body_kind(media) != "json"
        )


# -- Settings ---------------------------------------------------------------------------------------------------------


def _check_named(settings: OperationSettings, fixed: set[str], asked: set[str], fixed_body: list[_Candidate]) -> None:
    """Raise `DescriptionError` for settings without effect: the operation lacks what they name."""
    known = fixed | {each.wanted for each in fixed_body}
    for name in settings.fixed or ():
        if name not in known:
            raise DescriptionError(
                f"fixed has {name[:100]!r}, which is neither a parameter of the operation nor a member of its body "
                "that is an argument: correct the name"
            )
    for each in fixed_body:
        if each.is_upload:
            raise DescriptionError(f"fixed has {each.wanted[:100]!r}, which is a file: a file cannot be fixed")
    for name in settings.ask or ():
        if name not in asked | fixed:
            raise DescriptionError(
                f"ask has {name[:100]!r}, which is not a parameter of the operation: correct the name"
            )


# -- Names -------------------------------------------------------------------------------------------------------------


def _names(candidates: list[_Candidate], decided: Mapping[str, str]) -> dict[str, str]:
    """Name the arguments.

    Arguments with the same name get their location as a suffix. Names that were decided stay.
    """
    names = {each.key: decided[each.key] for each in candidates if each.key in decided}
    open_ones = [each for each in candidates if each.key not in names]
    plain = {each.key: plain_name(each.wanted) or each.place for each in open_ones}
    # Two parameters of one location whose names differ in other characters than letters and digits differ by a digest.
    digests = {each.key: sha256(each.key.encode()).hexdigest()[:4] for each in open_ones}
    for suffixes in ({each.key: each.place for each in open_ones}, digests):
        count = Counter((*names.values(), *plain.values()))
        for key, name in plain.items():
            if count[name] > 1:
                plain[key] = plain_name(f"{name}_{suffixes[key]}")
    return {**names, **plain}


def _schema_of(candidates: list[_Candidate], names: dict[str, str]) -> Schema:
    schema: Schema = {"type": "object", "properties": {names[each.key]: each.schema for each in candidates}}
    required = [names[each.key] for each in candidates if each.required]
    if required:
        schema["required"] = required
    schema["additionalProperties"] = False
    return schema


def _is_set_elsewhere(header: str) -> bool:
    """Return whether no model gives the value of a header."""
    name = spell_header(header)
    return _OF_THE_LIBRARY.fullmatch(name) is not None or _OF_THE_NETWORK.fullmatch(name) is not None


def _is_not_for_models(name: str) -> bool:
    """Return whether an optional header or cookie is a credential or part of the exchange."""
    name = spell_header(name)
    return _OF_THE_EXCHANGE.fullmatch(name) is not None or _CREDENTIAL.search(name) is not None


def _with_note(schema: Schema) -> Schema:
    """Add the note that a member is required if the optional body is sent."""
    said = schema.get("description")
    return {**schema, "description": f"{said} {_NEEDED}" if said else _NEEDED}


def _members_together(candidates: list[_Candidate], names: dict[str, str]) -> Iterator[Schema]:
    """Yield the rule that a sent member makes the required ones required."""
    needed = [names[each.key] for each in candidates if each.is_needed]
    if needed:
        members = [names[each.key] for each in candidates if each.member is not None]
        yield {"dependentRequired": dict.fromkeys(members, needed)}


def _api_keys(description: ApiDescription) -> set[tuple[str, str]]:
    """Return location and name of the parameters that carry API keys: they are no arguments."""
    components = description.root.root.get("components")
    schemes = components.get("securitySchemes") if isinstance(components, dict) else None
    found: set[tuple[str, str]] = set()
    for name, value in schemes.items() if isinstance(schemes, dict) else ():
        node = description.resolve(Node(value, description.root, f"/components/securitySchemes/{name}"))
        scheme = node.value if isinstance(node.value, dict) else {}
        if scheme.get("type") == "apiKey" and isinstance(scheme.get("name"), str):
            found.add((str(scheme.get("in")), scheme["name"]))
    return found


def _spelling(parameter: ParameterObject) -> tuple[str, str]:
    """Return location and name of a parameter in the one spelling that is compared."""
    return parameter.location, _spelled(parameter.location, parameter.name)


def _spelled(location: str, name: str) -> str:
    if location == "header":
        return spell_header(name)
    return name if location == "path" else spell(name)

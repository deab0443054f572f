"""Swagger 2.0 as OpenAPI 3.0, in memory: everything behind this knows only OpenAPI 3.

References to parameters and responses are replaced by their targets, because a parameter may turn out to be a body and
the media types of a response depend on the operation. References to schemas stay references.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from toolwire.openapi.model import DescriptionError
from toolwire.schemas.walking import SAME_VALUE_LIST, subschemas, with_subschemas
from toolwire.util.json_pointer import MISSING, at_pointer, escape_token, unescape_token

_METHODS: Final = ("get", "put", "post", "delete", "options", "head", "patch")
_JSON: Final = ("application/json",)
_URL_ENCODED: Final = "application/x-www-form-urlencoded"
_MULTIPART: Final = "multipart/form-data"
# 2.0, Parameter Object and Header Object: the members that belong to the schema in 3.0.
_SCHEMA_MEMBERS: Final = (
    "type", "format", "items", "default", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum", "maxLength",
    "minLength", "pattern", "maxItems", "minItems", "uniqueItems", "enum", "multipleOf", "x-nullable", "x-example",
)  # fmt: skip
# `collectionFormat` as `style`. OpenAPI 3 has no style for tabs; `tabDelimited` is known to our serializers only.
_STYLES: Final = {"ssv": "spaceDelimited", "tsv": "tabDelimited", "pipes": "pipeDelimited"}
_FLOWS: Final = {
    "implicit": "implicit",
    "password": "password",
    "application": "clientCredentials",
    "accessCode": "authorizationCode",
}
_SCHEMAS: Final = "/components/schemas/"
_DEFINITIONS: Final = "/definitions/"
_BINARY: Final = {"type": "string", "format": "binary"}

#: Return the content of another document, as it was written.
Load = Callable[[str], Any]


class _Part(NamedTuple):
    """A part of a 2.0 document, and the address of that document."""

    value: Any
    uri: str


class Converted(NamedTuple):
    """A document converted to OpenAPI 3.0, and its references to other documents."""

    value: Any
    external: set[str]


def convert(root: Any, uri: str, load: Load) -> Converted:
    """Convert a document of a Swagger 2.0 description to OpenAPI 3.0.

    `root` is not changed. It is the description itself, or a document that the description refers to, which holds
    schemas.
    """
    converter = _Converter(root, uri, load)
    is_description = isinstance(root, dict) and "swagger" in root
    return Converted(converter.description() if is_description else converter.collection(), converter.external)


def old_pointer(pointer: str) -> str:
    """Return where the value at a pointer was in the 2.0 document, if known."""
    for new, old in ((_SCHEMAS, _DEFINITIONS), ("/components/securitySchemes/", "/securityDefinitions/")):
        if pointer.startswith(new):
            return old + pointer.removeprefix(new)
    return pointer


class _Converter:
    """A converter of one document. Parts of other documents that it needs are loaded."""

    def __init__(self, root: Any, uri: str, load: Load) -> None:
        self._root = root
        self._uri = uri
        self._load = load
        # Schemas that stood outside of `definitions`, by pointer: their new names, and the schemas by name.
        self._moved: dict[str, str] = {}
        self._schemas: dict[str, Any] = {}
        self.external: set[str] = set()
        # Parameters and schemas of bodies and responses, by the identity of the old one. One that a thousand operations
        # share is converted once, and stays one object.
        self._parameters_done: dict[int, Any] = {}
        self._schemas_done: dict[int, Any] = {}

    def description(self) -> dict[str, Any]:
        root = self._root
        kept = {key: root[key] for key in root if key in ("info", "tags", "externalDocs", "security") or _is_own(key)}
        definitions = _object(root.get("definitions"))
        self._schemas.update({name: self._schema(each, self._uri) for name, each in definitions.items()})
        paths = {path: self._path_item(_Part(item, self._uri)) for path, item in _object(root.get("paths")).items()}
        schemes = {name: _security_scheme(each) for name, each in _object(root.get("securityDefinitions")).items()}
        return {
            "openapi": "3.0.4",
            **kept,
            "servers": _servers(root, root.get("schemes"), self._uri),
            "paths": paths,
            "components": {"schemas": self._schemas, "securitySchemes": schemes},
        }

    def collection(self) -> Any:
        """Return a document of schemas: one schema, `definitions`, or objects of schemas by name."""
        converted = self._collection(self._root, 0)
        if isinstance(converted, dict) and isinstance(converted.get("definitions"), dict):
            self._schemas.update(converted["definitions"])
        return {**converted, "components": {"schemas": self._schemas}} if self._schemas else converted

    def _collection(self, value: Any, depth: int) -> Any:
        if not isinstance(value, dict):
            return value
        if depth < 3 and not any(key in value for key in ("$ref", "type", "properties", "items", *SAME_VALUE_LIST)):
            return {key: self._collection(each, depth + 1) for key, each in value.items()}
        return self._schema(value, self._uri)

    # --- paths and operations ---

    def _path_item(self, part: _Part) -> Any:
        item = part.value
        if not isinstance(item, dict):
            return item
        if isinstance(reference := item.get("$ref"), str):
            if urldefrag(urljoin(part.uri, reference)).url == self._uri:
                return item  # The other path is converted as well.
            part = self._followed(part)
            item = _object(part.value)
            if "$ref" in item:
                return item  # It leads to nothing.
        shared = self._parameters(item, part.uri)
        converted = {key: value for key, value in item.items() if _is_own(key)}
        for method in _METHODS:
            if method in item:
                converted[method] = self._operation(item[method], part.uri, shared)
        return converted

    def _operation(self, operation: Any, uri: str, shared: list[_Part]) -> Any:
        if not isinstance(operation, dict):
            return operation
        kept = ("tags", "summary", "description", "externalDocs", "operationId", "deprecated", "security")
        converted = {key: value for key, value in operation.items() if key in kept or _is_own(key)}
        if isinstance(operation.get("schemes"), list) and operation["schemes"]:
            converted["servers"] = _servers(self._root, operation["schemes"], self._uri)
        # 2.0, Operation Object: a parameter replaces that of the path with the same name and location.
        parameters = {_key(each): each for each in (*shared, *self._parameters(operation, uri))}
        by_location: dict[Any, list[_Part]] = {"body": [], "formData": [], None: []}
        for each in parameters.values():
            location = each.value.get("in") if isinstance(each.value, dict) else None
            by_location[location if location in ("body", "formData") else None].append(each)
        plain, bodies, form = by_location[None], by_location["body"], by_location["formData"]
        if plain:
            converted["parameters"] = [self._parameter(each) for each in plain]
        consumes = _media_types(operation.get("consumes"), self._root.get("consumes"))
        if bodies:
            converted["requestBody"] = self._body(bodies[-1], consumes or _JSON)
        elif form:
            converted["requestBody"] = self._form(form, consumes)
        produces = _media_types(operation.get("produces"), self._root.get("produces"))
        converted["responses"] = {
            status: each if _is_own(status) else self._response(_Part(each, uri), produces)
            for status, each in _object(operation.get("responses")).items()
        }
        return converted

    # --- parameters and bodies ---

    def _parameters(self, owner: dict[str, Any], uri: str) -> list[_Part]:
        """Return the parameters of a path or an operation, and follow references."""
        listed = owner.get("parameters")
        return [self._followed(_Part(each, uri)) for each in listed] if isinstance(listed, list) else []

    def _parameter(self, part: _Part) -> Any:
        found = self._parameters_done.get(id(part.value))
        if found is None:
            found = self._parameters_done[id(part.value)] = self._converted_parameter(part)
        return found

    def _converted_parameter(self, part: _Part) -> Any:
        old = part.value
        if not isinstance(old, dict) or "$ref" in old:
            return old  # It leads to nothing, which is an error of the operation.
        moved = (*_SCHEMA_MEMBERS, "collectionFormat", "schema")
        parameter = {key: value for key, value in old.items() if key not in moved}
        parameter["schema"] = self._value_schema(part)
        location, format_ = old.get("in"), old.get("collectionFormat", "csv")
        if old.get("type") == "array":
            parameter |= _array_form(location == "query", format_)
        return parameter

    def _value_schema(self, part: _Part) -> Any:
        """Return the schema of a parameter, a header or a member of a form."""
        old = part.value
        # `schema` belongs to bodies only, but some documents have it in other places.
        own = old.get("schema") if isinstance(old.get("schema"), dict) else {}
        return self._schema({**own, **{key: old[key] for key in _SCHEMA_MEMBERS if key in old}}, part.uri)

    def _body(self, part: _Part, consumes: tuple[str, ...]) -> dict[str, Any]:
        old = part.value
        schema = self._shared_schema(old.get("schema", {}), part.uri)
        body = {key: value for key, value in old.items() if key in ("description", "required") or _is_own(key)}
        return {**body, "content": {media_type: {"schema": schema} for media_type in consumes}}

    def _form(self, parts: list[_Part], consumes: tuple[str, ...]) -> dict[str, Any]:
        properties: dict[str, Any] = {}
        encoding: dict[str, Any] = {}
        for part in parts:
            old, name = part.value, str(part.value.get("name"))
            schema = self._value_schema(part)
            if "description" in old and "$ref" not in schema:
                schema = {**schema, "description": old["description"]}
            properties[name] = schema
            if old.get("type") == "array":
                encoding[name] = _array_form(True, old.get("collectionFormat", "csv"))
        required = [str(part.value.get("name")) for part in parts if part.value.get("required") is True]
        schema = {"type": "object", "properties": properties, **({"required": required} if required else {})}
        # 2.0, Parameter Object: a file is sent as multipart/form-data, or as a form where that is all the API takes.
        has_files = any(part.value.get("type") == "file" for part in parts)
        forms = tuple(each for each in consumes if each.partition(";")[0].strip() in (_URL_ENCODED, _MULTIPART))
        if has_files:
            forms = (_MULTIPART,)
        media = {"schema": schema, **({"encoding": encoding} if encoding else {})}
        return {"content": dict.fromkeys(forms or (_URL_ENCODED,), media), "required": bool(required)}

    # --- responses ---

    def _response(self, part: _Part, produces: tuple[str, ...]) -> Any:
        part = self._followed(part)
        old = part.value
        if not isinstance(old, dict) or "$ref" in old:
            return old
        response = {key: value for key, value in old.items() if key == "description" or _is_own(key)}
        response.setdefault("description", "")
        schema = old.get("schema")
        if isinstance(schema, dict):
            is_file = schema.get("type") == "file"
            types = produces or (("application/octet-stream",) if is_file else _JSON)
            examples = _object(old.get("examples"))
            converted = self._shared_schema(schema, part.uri)
            response["content"] = {
                each: {"schema": converted} | ({"example": examples[each]} if each in examples else {})
                for each in types
            }
        headers = _object(old.get("headers"))
        if headers:
            response["headers"] = {
                name: {"schema": self._value_schema(_Part(each, part.uri))}
                | ({"description": each["description"]} if "description" in each else {})
                for name, each in headers.items()
                if isinstance(each, dict)
            }
        return response

    # --- schemas ---

    def _shared_schema(self, schema: Any, uri: str) -> Any:
        found = self._schemas_done.get(id(schema))
        if found is None:
            found = self._schema(schema, uri)
            if isinstance(schema, dict) and schema:
                self._schemas_done[id(schema)] = found
        return found

    def _schema(self, schema: Any, uri: str) -> Any:
        """Return a schema of 2.0 as one of 3.0; the same object where nothing changes."""
        if not isinstance(schema, dict):
            return schema
        if isinstance(reference := schema.get("$ref"), str):
            return {**schema, "$ref": self._schema_reference(reference, uri)}
        changed: dict[str, Any] = {}
        if next(subschemas(schema), None) is not None:
            # Some keywords do not belong to 2.0, but are written all the same.
            changed = with_subschemas(schema, lambda part: self._schema(part, uri))
        if schema.get("type") == "file":
            changed |= _BINARY
        if isinstance(schema.get("discriminator"), str):
            changed["discriminator"] = {"propertyName": schema["discriminator"]}
        if schema.get("x-nullable") is True:
            changed["nullable"] = True
        if "x-example" in schema and "example" not in schema:
            changed["example"] = schema["x-example"]
        return {**schema, **changed} if changed else schema

    def _schema_reference(self, reference: str, uri: str) -> str:
        if uri == self._uri and reference.startswith("#" + _DEFINITIONS):
            return f"#{_SCHEMAS}{reference.removeprefix('#' + _DEFINITIONS)}"
        absolute, fragment = urldefrag(urljoin(uri, reference))
        pointer = unquote(fragment)
        if absolute != self._uri:  # The other document is converted by itself.
            self.external.add(absolute)
            return f"{absolute}#{_new_pointer(fragment)}" if fragment else absolute
        if pointer.startswith(_DEFINITIONS) or at_pointer(self._root, pointer) is MISSING:
            return f"#{_new_pointer(fragment)}"
        if pointer not in self._moved:
            name = _free_name(pointer, self._schemas.keys() | _object(self._root.get("definitions")).keys())
            self._moved[pointer] = name
            self._schemas[name] = {}  # The name is taken, also while the schema refers to itself.
            self._schemas[name] = self._schema(at_pointer(self._root, pointer), uri)
        return f"#{_SCHEMAS}{escape_token(self._moved[pointer])}"

    # --- references ---

    def _followed(self, part: _Part) -> _Part:
        """Return the target of a reference to a parameter, a response or a path item.

        A reference to nothing stays where it is: who needs it gets the error, and other operations can be used.
        """
        start, seen = part, set[str]()
        while isinstance(part.value, dict) and isinstance(reference := part.value.get("$ref"), str):
            absolute, fragment = urldefrag(urljoin(part.uri, reference))
            name = f"{absolute}#{fragment}"
            try:
                root = self._root if absolute == self._uri else self._load(absolute)
            except DescriptionError:
                self.external.add(absolute)  # So that the reason is known where it is needed.
                return start
            value = at_pointer(root, unquote(fragment))
            if value is MISSING or name in seen:
                return start
            seen.add(name)
            part = _Part(value, absolute)
        return part


# --- parts without references ---


def _is_own(key: str) -> bool:
    """Return whether a member is an extension."""
    return key.startswith("x-")


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _key(part: _Part) -> tuple[Any, ...]:
    """Return what makes two parameters the same. There is one body, whatever its name."""
    value = part.value
    if not isinstance(value, dict) or "$ref" in value:
        return ("", str(value))
    return ("body",) if value.get("in") == "body" else (str(value.get("in")), str(value.get("name")))


def _media_types(*lists: Any) -> tuple[str, ...]:
    """Return the first list of media types, which may be empty.

    An empty one of an operation replaces the lists before it.
    """
    found = next((each for each in lists if isinstance(each, list)), [])
    return tuple(each for each in found if isinstance(each, str))


def _array_form(is_multi_allowed: bool, collection_format: Any) -> dict[str, Any]:
    """Return `style` and `explode` for a `collectionFormat`."""
    if isinstance(collection_format, str) and collection_format in _STYLES:
        return {"style": _STYLES[collection_format], "explode": False}
    if is_multi_allowed:
        return {"style": "form", "explode": collection_format == "multi"}
    return {"style": "simple", "explode": False}


def _servers(root: Mapping[str, Any], schemes: Any, uri: str) -> list[dict[str, Any]]:
    base = root.get("basePath") if isinstance(root.get("basePath"), str) else ""
    path = f"/{base.strip('/')}" if base else "/"
    host = root.get("host")
    if not isinstance(host, str) or not host:
        return [{"url": path}]  # 2.0, Swagger Object: the host that serves the description.
    usable = [each for each in schemes if each in ("https", "http")] if isinstance(schemes, list) else []
    if not usable:
        # 2.0, Swagger Object: the scheme with which the description was fetched.
        usable = ["http" if urlsplit(uri).scheme == "http" else "https"]
    return [{"url": f"{scheme}://{host}{path if path != '/' else ''}"} for scheme in sorted(set(usable), reverse=True)]


def _security_scheme(scheme: Any) -> Any:
    if not isinstance(scheme, dict):
        return scheme
    kept = {key: value for key, value in scheme.items() if key == "description" or _is_own(key)}
    if scheme.get("type") == "basic":
        return {**kept, "type": "http", "scheme": "basic"}
    if scheme.get("type") != "oauth2":
        return scheme
    members = ("authorizationUrl", "tokenUrl")
    flow = {"scopes": _object(scheme.get("scopes")), **{key: scheme[key] for key in members if key in scheme}}
    return {**kept, "type": "oauth2", "flows": {_FLOWS.get(str(scheme.get("flow")), "implicit"): flow}}


def _new_pointer(fragment: str) -> str:
    return _SCHEMAS + fragment.removeprefix(_DEFINITIONS) if fragment.startswith(_DEFINITIONS) else fragment


def _free_name(pointer: str, taken: Collection[str]) -> str:
    """Return a name for a schema that stood at a pointer."""
    words = [unescape_token(token) for token in pointer.split("/")[1:]]
    name = "_".join(re.sub(r"\W+", "_", word).strip("_") for word in words[-3:]) or "schema"
    number = 2
    free = name
    while free in taken:
        free, number = f"{name}_{number}", number + 1
    return free

"""Resources and resource templates: things to read, under an address or a pattern of addresses."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack, cast

import msgspec
from msgspec import UNSET, UnsetType

from toolwire.adapters import Invalid
from toolwire.content import Audio, File, Image, blob_contents, text_contents
from toolwire.lazy_patterns import lazy_pattern
from toolwire.protocol import types as t
from toolwire.protocol.errors import INVALID_PARAMS, ProtocolError, ResourceNotFound, ServerError
from toolwire.protocol.open_codec import exact_meta, replace_members
from toolwire.protocol.surrogates import encode_readable
from toolwire.server.binding import Binding, InvalidArguments, ResultError, bind, is_lambda
from toolwire.server.binding.results import close_coroutine
from toolwire.server.call import Call
from toolwire.server.completion import Completion, choices_in, completions_for
from toolwire.server.components.base import Component, annotations_of, given
from toolwire.server.components.cache import Cache
from toolwire.server.components.options import Options
from toolwire.server.context import is_context

if TYPE_CHECKING:
    from toolwire.protocol.uri_template import UriTemplate

log: logging.Logger = logging.getLogger("toolwire.server")


class Resource(Component):
    """Something to read, under one address."""

    kind = "resources"
    noun = "resource"
    digest: str | None = None
    """The digest of its contents, where they are known before they are read."""
    source_files: Sequence[str] = ()
    """The files that its contents are made of. `toolwire dev` loads the server again when one changes."""

    def __init__(
        self,
        uri: Any,
        function: Callable[..., Any] | None = None,
        *,
        content: Any = UNSET,
        name: str | None = None,
        mime_type: str | None = None,
        annotations: t.Annotations | Mapping[str, Any] | None = None,
        size: int | None = None,
        cache: Cache | None = None,
        **options: Unpack[Options],
    ) -> None:
        self.uri: str = checked_uri(str(uri))
        self.key: str = self.uri
        if (function is None) == (content is UNSET):
            raise ServerError(f"The resource {self.uri} needs a function or content=, one of the two")
        binding = None if function is None else _bound(function, name, self.uri)
        if binding is not None and binding.parameters and not _is_uri_only(binding):
            raise ServerError(
                f"The resource {self.uri} has no variables, so nothing can fill the parameter "
                f"{binding.parameters[0].name!r} of its function; a template has {{variables}} in its address"
            )
        self.function = function
        self.content = content
        self.name: str = name or (binding.name if binding is not None else self.uri)
        self.mime_type: str = _view_type(self.uri, mime_type) or mime_type or _mime_type_of(function, content)
        self.annotations: t.Annotations | UnsetType = annotations_of(annotations)
        self.size = size
        self.cache = cache
        self._takes_uri = binding is not None and bool(binding.parameters)
        super().__init__(binding, **options)

    @property
    def argument_names(self) -> Collection[str]:
        return ("uri",)

    def definition(self, revision: str) -> t.Resource:
        return t.Resource(
            uri=self.uri,
            name=self.name,
            title=given(self.title),
            description=given(self.description),
            mime_type=given(self.mime_type),
            annotations=self.annotations,
            size=given(self.size),
            icons=self.icons,
            meta=self.meta,
        )

    async def read(self, call: Call, uri: str) -> list[t.ResourceContents]:
        if self._invoke is None:
            return with_meta(to_contents(self.content, uri, self.mime_type), self.meta)
        arguments: dict[str, Any] = {"uri": uri} if self._takes_uri else {}
        return cast(
            "list[t.ResourceContents]",
            await self.run(
                call, arguments, lambda value: with_meta(to_contents(value, uri, self.mime_type), self.meta)
            ),
        )


class ResourceTemplate(Component):
    """Things to read, under addresses that follow a pattern (RFC 6570)."""

    kind = "templates"
    noun = "resource"

    def __init__(
        self,
        uri_template: str,
        function: Callable[..., Any] | None = None,
        *,
        name: str | None = None,
        mime_type: str | None = None,
        annotations: t.Annotations | Mapping[str, Any] | None = None,
        cache: Cache | None = None,
        screen: bool = True,
        completions: Mapping[str, Callable[..., Any] | Sequence[str]] | None = None,
        **options: Unpack[Options],
    ) -> None:
        from toolwire.protocol.uri_template import UriTemplate

        self.uri_template: str = uri_template
        self.key: str = uri_template
        try:
            self.template: UriTemplate = UriTemplate(uri_template, screen=screen)
        except ValueError as error:
            raise ServerError(f"{uri_template!r} is not a URI template: {error}") from None
        if function is not None and self.template.unmatchable:
            raise ServerError(f"{uri_template!r} cannot be matched: {self.template.unmatchable}")
        binding = None if function is None else _bound(function, name, uri_template)
        self.function = function
        self.binding = binding
        self._given = () if binding is None else _template_parameters(binding, self.template)
        self.choices: dict[str, tuple[str, ...]] = choices_in(binding, self.template.variables)
        """The possible values of variables, where the types of the function list them."""
        self.completions: Mapping[str, Completion] = completions_for(uri_template, completions, self.template.variables)
        self.name: str = name or (binding.name if binding is not None else uri_template)
        self.mime_type: str = _view_type(uri_template, mime_type) or mime_type or _mime_type_of(function, UNSET)
        self.annotations: t.Annotations | UnsetType = annotations_of(annotations)
        self.cache = cache
        super().__init__(binding, **options)

    @property
    def argument_names(self) -> Collection[str]:
        return ("uri", *self.template.variables)

    @property
    def completable(self) -> Collection[str]:
        """The names of the variables for which clients can ask for suggestions."""
        return self.template.variables

    def definition(self, revision: str) -> t.ResourceTemplate:
        return t.ResourceTemplate(
            uri_template=self.uri_template,
            name=self.name,
            title=given(self.title),
            description=given(self.description),
            mime_type=given(self.mime_type),
            annotations=self.annotations,
            icons=self.icons,
            meta=self.meta,
        )

    async def read(self, call: Call, uri: str, variables: dict[str, str]) -> list[t.ResourceContents]:
        assert self.binding is not None
        try:
            arguments = self.binding.arguments(msgspec.json.encode(self._taken(uri, variables)))
        except InvalidArguments as error:
            raise _misfit(uri, error) from None
        return cast(
            "list[t.ResourceContents]",
            await self.run(
                call, arguments, lambda value: with_meta(to_contents(value, uri, self.mime_type), self.meta)
            ),
        )

    def _taken(self, uri: str, variables: dict[str, str]) -> dict[str, Any]:
        """Return the values that the function takes out of an address, by the names of its parameters."""
        available: dict[str, Any] = {"uri": uri, "variables": variables, **variables}
        return {name: available[name] for name in self._given if name in available}

    def meant(self, sent: dict[str, Any]) -> dict[str, Any]:
        if self.binding is None:
            return sent
        variables = {name: value for name, value in sent.items() if name in self.template.variables}
        try:
            return {**sent, **self.binding.meant(self._taken(sent["uri"], variables))}
        except InvalidArguments as error:
            raise _misfit(sent["uri"], error) from None


def _bound(function: Callable[..., Any], name: str | None, address: str) -> Binding:
    """Compile a provider. One without a name of its own, such as a lambda, goes by the address."""
    if name is None and is_lambda(function):
        name = address
    return bind(function, name=name, is_context=is_context, structured=False)


def _misfit(uri: str, error: InvalidArguments) -> ProtocolError:
    return ProtocolError(INVALID_PARAMS, f"{uri[:200]} does not fit: {error}", {"uri": uri})


def _template_parameters(binding: Binding, template: UriTemplate) -> tuple[str, ...]:
    names = tuple(parameter.name for parameter in binding.parameters)
    for parameter in binding.parameters:
        if parameter.name in template.variables or parameter.name in ("uri", "variables") or not parameter.required:
            continue
        raise ServerError(
            f"{template.text!r} has no variable {parameter.name!r}, which the function {binding.name!r} needs; "
            f"it has {', '.join(template.variables) or 'none'}"
        )
    return names


def _is_uri_only(binding: Binding) -> bool:
    return [parameter.name for parameter in binding.parameters] == ["uri"]


# 2025-06-18 server/resources: custom schemes follow RFC 3986.
_URI = lazy_pattern(r"[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20\x7f]+")


def checked_uri(uri: str) -> str:
    from toolwire.protocol.uri_expressions import MAX_URI_LENGTH

    if len(uri) > MAX_URI_LENGTH or _URI.fullmatch(uri) is None:
        raise ServerError(f"{uri[:200]!r} is not a URI: it needs a scheme, such as note://today, and no blanks")
    return uri


def _view_type(uri: str, mime_type: str | None) -> str | None:
    """Return the type of a view that names none; None for everything else. Another type is served, and told about."""
    if not uri.startswith("ui://"):
        return None
    # Imported here because few servers have views that are no apps.
    from toolwire.protocol.apps import APP_MIME_TYPE, is_app_type

    if mime_type is None:
        return APP_MIME_TYPE
    if not is_app_type(mime_type):
        log.warning("hosts do not show the view %s with the type %s: leave out mime_type=", uri[:200], mime_type[:100])
    return None


def _mime_type_of(function: Callable[..., Any] | None, content: Any) -> str:
    """Return the default type: plain text for text, bytes for bytes, JSON for the rest."""
    if function is None:
        sample: Any = type(content) if content is not UNSET else None
    else:
        target = getattr(function, "__func__", function)
        sample = getattr(target, "__annotations__", {}).get("return")
    if sample in (str, "str"):
        return "text/plain"
    if sample in (bytes, "bytes"):
        return "application/octet-stream"
    return "application/json"


def to_contents(value: Any, uri: str, mime_type: str) -> list[t.ResourceContents]:
    """Convert the value of a resource function to contents. Raise `ResourceNotFound` for None."""
    if value is None:
        raise ResourceNotFound(data={"uri": uri})
    if isinstance(value, t.ResourceContents):
        return [_addressed(value, uri)]
    if isinstance(value, list) and value and all(isinstance(item, t.ResourceContents) for item in value):
        return [_addressed(item, uri) for item in value]
    if isinstance(value, str):
        return [t.ResourceContents(uri=uri, mime_type=mime_type, text=value)]
    if isinstance(value, bytes | bytearray | memoryview):
        return [t.ResourceContents(uri=uri, mime_type=mime_type, blob=bytes(value))]
    if isinstance(value, Image | Audio | File):
        block = value.to_content()
        if isinstance(block, t.EmbeddedResource):
            return [replace_members(block.resource, uri=uri)]
        return [t.ResourceContents(uri=uri, mime_type=block.mime_type, blob=block.data, meta=block.meta)]
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], bytes) and isinstance(value[1], str):
        return [t.ResourceContents(uri=uri, mime_type=value[1], blob=value[0])]
    if isinstance(value, dict) and isinstance(value.get("blob"), bytes):
        return [blob_contents(uri, value["blob"], mime_type=value.get("mimeType", "application/octet-stream"))]
    try:
        text = encode_readable(value, _dump).decode()
    except (TypeError, ValueError, RecursionError, Invalid) as error:
        reason = close_coroutine(value) or error
        raise ResultError(f"A resource returned {type(value).__name__}, which is not JSON: {reason}") from None
    return [text_contents(uri, text, mime_type=mime_type)]


def _dump(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(mode="json")
    raise TypeError(f"{type(value).__name__} is not a JSON value")


def _addressed(contents: t.ResourceContents, uri: str) -> t.ResourceContents:
    return contents if contents.uri else replace_members(contents, uri=uri)


def with_meta(contents: list[t.ResourceContents], meta: dict[str, Any] | UnsetType) -> list[t.ResourceContents]:
    """Return contents with the `_meta` of their resource. A key that the function gives its contents wins."""
    if meta is UNSET:
        return contents
    return [
        replace_members(each, meta=dict(meta) if each.meta is UNSET else {**meta, **exact_meta(each)})
        for each in contents
    ]

"""The lock file of an API: its documents, chosen operations, and their tools.

It is JSON with one value on each line, in an order that does not depend on the documents, so that a version control
system shows what a change means for the model. The tools in it are whole: a check needs no document of the past.
Documents from URLs are kept in a folder beside the file. The server reads those copies, so that it serves what was
reviewed, also when the API describes itself differently by now.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urljoin

import msgspec
from msgspec import Struct

from toolwire.openapi.model import (
    ApiDescription,
    DescriptionError,
    EncodingObject,
    LeftOutOperation,
    Node,
    OperationObject,
    ParameterObject,
    ServerObject,
    ServerVariable,
    ToolArgument,
    ToolDefinition,
    digest_of,
)
from toolwire.protocol import types as t
from toolwire.tokens import definition_tokens
from toolwire.wire.regular_files import read_beginning, read_regular, replace_file

FORMAT: Final = "toolwire-openapi-lock/1"
_MAX_BYTES: Final = 64_000_000
#: No limit of a description is larger.
_MAX_COPY: Final = 1024 * 1024 * 1024
_FILE: Final = "file://"


class LockedDocument(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A document that was read."""

    digest: str
    copy: str | None = None
    """The file beside the lock that has the bytes; None for a document that is a file itself."""


class LockedServer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A server whose address its URL alone does not decide."""

    url: str
    name: str | None = None
    """The name for `server=` (3.2)."""
    variables: dict[str, ServerVariable] = {}
    """The variables of the URL: what stands in the place of each, and what may."""

    def __str__(self) -> str:
        texts = [f"{name}={each.default}" for name, each in self.variables.items()]
        texts += [f"{name} in {list(each.enum)}" for name, each in self.variables.items() if each.enum]
        named = "" if self.name is None else f" named {self.name}"
        return self.url + (f" with {', '.join(texts)}" if texts else "") + named


class LockedOperation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A chosen operation and its tool."""

    method: str
    path: str
    operation: str | None = None
    """The `operationId`."""
    tool: str
    title: str | None = None
    description: str = ""
    arguments: dict[str, str] = {}
    """The arguments, each with its place in the request: `query limit`, `path petId`, `body name`, `body`."""
    media_type: str | None = None
    forms: dict[str, Any] = {}
    """How members of the body and parameters are written where `arguments` does not say it: `encoding` of the body by
    `body NAME`, and `allowReserved`."""
    tags: tuple[str, ...] | None = None
    """The tags, in order of their names: rules of a server go by them. None in files of older versions, which have no
    `forms` either."""
    annotations: t.ToolAnnotations
    servers: tuple[str | LockedServer, ...] = ()
    """Plain URLs, and servers with variables or names. Older files have only URLs."""
    security: tuple[dict[str, tuple[str, ...]], ...] = ()
    tokens: int = 0
    """About how many tokens of a model's context the definition takes."""
    digest: str = ""
    """The digest of all members that decide what the tool does. The `operationId` does not."""
    answers: str | None = None
    """The digest of the schema that the description has for answers."""
    settings: dict[str, Any] = {}
    """Decisions of a person about this operation: see `OperationSettings`."""
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None = None

    @property
    def label(self) -> str:
        """Return how people name the operation: its id, else method and path."""
        return self.operation or self.place

    @property
    def place(self) -> str:
        return f"{self.method} {self.path}"


class Lock(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of a lock file."""

    format: str = FORMAT
    source: str
    """The address of the root document: a URL, or a path relative to the lock file."""
    title: str = ""
    version: str = ""
    settings: dict[str, Any] = {}
    """Options of `openapi()`, such as `base_url` and `credentials`."""
    overlays: tuple[str, ...] = ()
    documents: dict[str, LockedDocument] = {}
    security_schemes: dict[str, Any] = {}
    """The security schemes of the chosen operations, as the description has them."""
    operations: tuple[LockedOperation, ...] = ()
    """The chosen operations, ordered by path and method."""
    others: tuple[str, ...] = ()
    """The operations that are not chosen, as `METHOD /path`."""

    @property
    def tokens(self) -> int:
        return sum(each.tokens for each in self.operations)


class LockedPlaces:
    """Finds the locked operation for an operation of today.

    `places` are those of all operations of today.
    """

    def __init__(self, lock: Lock, places: Collection[str]) -> None:
        self._by_place = {each.place: each for each in lock.operations}
        # An operation has moved only if its old place is empty now.
        gone = (each for each in lock.operations if each.operation is not None and each.place not in places)
        self._by_id = {each.operation: each for each in gone}

    def find(self, place: str, operation_id: str | None) -> LockedOperation | None:
        found = self._by_place.get(place)
        return self._by_id.get(operation_id) if found is None and operation_id is not None else found


# --- the file ---


def encode_lock(lock: Lock) -> bytes:
    """Return the text of a lock file."""
    plain = msgspec.to_builtins(lock)
    # Members with default values are written as well where a reader looks for them.
    return msgspec.json.format(msgspec.json.encode({"format": FORMAT, **plain}), indent=2) + b"\n"


def write_lock(path: str | os.PathLike[str], lock: Lock, copies: Mapping[str, bytes]) -> None:
    """Write a lock file and the copies of documents beside it.

    Copies that the lock does not name are removed. Raises `DescriptionError` where they cannot be written.
    """
    target = Path(path)
    try:
        _write_lock(target, lock, copies)
    except OSError as error:
        raise DescriptionError(
            f"{target} cannot be written ({error.strerror}): check its folder and the permissions"
        ) from None


def _write_lock(target: Path, lock: Lock, copies: Mapping[str, bytes]) -> None:
    folder = copies_folder(target)
    wanted = {document.copy: uri for uri, document in lock.documents.items() if document.copy is not None}
    for name, uri in wanted.items():
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(target.parent / name, copies[uri], 0o666)
    replace_file(target, encode_lock(lock), 0o666)
    if folder.is_dir():
        for old in folder.iterdir():
            if old.is_file() and f"{folder.name}/{old.name}" not in wanted:
                old.unlink()
        if not any(folder.iterdir()):
            folder.rmdir()


def read_lock(path: str | os.PathLike[str]) -> Lock:
    """Read a lock file. Raise `DescriptionError` for one that cannot be used."""
    target = Path(path)
    remedy = "`toolwire openapi add FILE` writes a lock file"
    try:
        if target.stat().st_size > _MAX_BYTES:
            raise DescriptionError(f"{target} has more than {_MAX_BYTES:,} bytes: {remedy}")
        data = read_regular(target, _MAX_BYTES)
    except OSError as error:
        raise DescriptionError(f"{target} cannot be read: {error.strerror or error}; {remedy}") from None
    try:
        lock = msgspec.json.decode(data, type=Lock)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DescriptionError(f"{target} is not a lock file: {error}; {remedy}") from None
    if lock.format != FORMAT:
        raise DescriptionError(f"{target} has the format {lock.format!r}, and this version reads {FORMAT!r}: {remedy}")
    return lock


def is_lock(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is a lock file of any version, by its beginning."""
    try:
        return b'"toolwire-openapi-lock/' in read_beginning(Path(path), 200)
    except (OSError, ValueError):  # A text with a NUL is the name of no file.
        return False


def read_copies(path: str | os.PathLike[str], lock: Lock) -> dict[str, bytes]:
    """Return the documents beside a lock file, by URI.

    Raises `DescriptionError` if one was changed.
    """
    target = Path(path)
    found: dict[str, bytes] = {}
    for name, document in lock.documents.items():
        if document.copy is None:
            continue
        # A lock file may be foreign: it may name only files of its own folder.
        file = copies_folder(target) / Path(document.copy).name
        if f"{copies_folder(target).name}/{file.name}" != document.copy:
            raise DescriptionError(f"{target}: the copy {document.copy!r} of {name} is not in {file.parent.name}/")
        try:
            data = read_regular(file, _MAX_COPY)
        except OSError as error:
            raise DescriptionError(
                f"{file} cannot be read: {error.strerror or error}. It is the copy of {name}; "
                "commit it with the lock file, or write both again with `toolwire openapi add`"
            ) from None
        if digest_of(data) != document.digest:
            raise DescriptionError(
                f"{file} is not the copy of {name} that was locked: its digest differs. "
                "Write both again with `toolwire openapi add`"
            )
        found[uri_of(name, target.parent)] = data
    return found


def copies_folder(lock: Path) -> Path:
    """Return the folder of the copies: `api.lock.documents` for `api.lock.json`."""
    return lock.with_name(f"{lock.name.removesuffix('.json')}.documents")


# --- names of documents ---


def name_of(uri: str, folder: str | os.PathLike[str]) -> str:
    """Return the name of a document in a lock file.

    A file has its path from the folder of the lock, any other document its URI.
    """
    if not uri.startswith(_FILE):
        return uri
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    path = url2pathname(urlsplit(uri).path)
    try:
        return Path(os.path.relpath(path, Path(folder).resolve())).as_posix()
    except ValueError:  # Another drive of Windows.
        return Path(path).as_posix()


def uri_of(name: str, folder: str | os.PathLike[str]) -> str:
    """Return the URI of a document that a lock file names."""
    if "://" in name:
        return name
    return Path(os.path.normpath(Path(folder).resolve() / name)).as_uri()


def _copy_names(uris: Iterable[str], folder: str) -> dict[str, str]:
    """Name the copies of documents by the ends of their URIs.

    Names stay when documents are added.
    """
    from urllib.parse import urlsplit

    found: dict[str, str] = {}
    for uri in sorted(uris):
        end = urlsplit(uri).path.rpartition("/")[2]
        plain = "".join(each if each.isalnum() or each in "._-" else "_" for each in end).lstrip(".") or "document"
        if f"{folder}/{plain}" in found.values():
            plain = f"{hashlib.sha256(uri.encode()).hexdigest()[:8]}-{plain}"
        found[uri] = f"{folder}/{plain}"
    return found


# --- making one ---


def make_lock(
    path: str | os.PathLike[str],
    description: ApiDescription,
    definitions: Sequence[ToolDefinition],
    others: Iterable[OperationObject | LeftOutOperation],
    *,
    source: str,
    digests: Mapping[str, str],
    overlays: Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
    decisions: Mapping[str, Mapping[str, Any]] | None = None,
) -> Lock:
    """Return the lock of chosen definitions. `digests` are those of all documents, by URI.

    `decisions` are settings of a person, by the label of the operation.
    """
    target = Path(path)
    folder = target.parent
    copies = _copy_names((uri for uri in digests if not uri.startswith(_FILE)), copies_folder(target).name)
    about = description.root.root.get("info")
    about = about if isinstance(about, dict) else {}
    root = description.root.retrieved_from
    operations = [locked(each, (decisions or {}).get(each.operation.label), root) for each in definitions]
    return Lock(
        source=source,
        title=str(about.get("title", "")),
        version=str(about.get("version", "")),
        settings=dict(settings or {}),
        overlays=tuple(overlays),
        documents={
            name_of(uri, folder): LockedDocument(digest=digest, copy=copies.get(uri))
            for uri, digest in sorted(digests.items())
        },
        security_schemes=used_schemes(description, definitions),
        operations=tuple(sorted(operations, key=lambda each: (each.path, each.method))),
        others=tuple(sorted(f"{each.method} {each.path}" for each in others)),
    )


def locked(
    definition: ToolDefinition, decisions: Mapping[str, Any] | None = None, root: str | None = None
) -> LockedOperation:
    """Return a definition in the form of a lock file. `root` is the root document."""
    operation = definition.operation
    true_output = definition.true_output_schema
    made = LockedOperation(
        method=operation.method,
        path=operation.path,
        operation=operation.operation_id,
        tool=definition.name,
        title=definition.title,
        description=definition.description,
        arguments={each.name: place_of(each) for each in definition.arguments},
        media_type=definition.media.media_type if definition.media is not None else None,
        forms=_forms_of(definition),
        tags=tuple(sorted(set(operation.tags))),
        annotations=definition.annotations,
        servers=tuple(_locked_server(each, root) for each in operation.servers),
        security=tuple(
            {name: tuple(scopes) for name, scopes in sorted(each.schemes.items())} for each in operation.security
        ),
        tokens=definition_tokens(definition.name, definition.description, definition.input_schema),
        answers=None if true_output is None else digest_of(msgspec.json.encode(true_output, order="sorted")),
        settings=dict(decisions or {}),
        input_schema=definition.input_schema,
        output_schema=definition.output_schema,
    )
    return msgspec.structs.replace(made, digest=operation_digest(made))


def as_older_version(operation: LockedOperation) -> LockedOperation:
    """Return an operation as a version without tags and forms locked it."""
    plain = msgspec.structs.replace(operation, tags=None, forms={})
    return msgspec.structs.replace(plain, digest=operation_digest(plain))


def _locked_server(server: ServerObject, root: str | None) -> str | LockedServer:
    """Return a server with all that decides where its requests go."""
    url = server.url
    if root is not None and server.document_uri != root and "://" not in url:
        # Relative to a document that a reference names: that document decides the host.
        url = urljoin(server.document_uri, url) if server.document_uri.startswith(("http://", "https://")) else url
    used = {name: each for name, each in sorted(server.variables.items()) if f"{{{name}}}" in server.url}
    return LockedServer(url=url, name=server.name, variables=used) if used or server.name is not None else url


def operation_digest(operation: LockedOperation) -> str:
    """Return the digest of all that decides what a tool does."""
    plain = msgspec.to_builtins(operation)
    for member in ("operation", "tokens", "digest", "settings"):
        plain.pop(member, None)
    return digest_of(msgspec.json.encode(plain, order="sorted"))


def place_of(argument: ToolArgument) -> str:
    """Return where an argument goes in the request, as a lock file says it."""
    if argument.parameter is None:
        return "body" if argument.member is None else f"body {argument.member}"
    parameter = argument.parameter
    return f"{parameter.location} {parameter.name}{_form_of(parameter)}"


def _form_of(parameter: ParameterObject) -> str:
    """Return the form of a parameter, if it is unusual for its location."""
    if parameter.content is not None:
        return f" ({parameter.content})"
    usual = "form" if parameter.location in ("query", "cookie") else "simple"
    if parameter.style == usual and parameter.explode == (usual == "form"):
        return ""
    return f" ({parameter.style}{', explode' if parameter.explode else ''})"


def _forms_of(definition: ToolDefinition) -> dict[str, Any]:
    """Return how parts of a request are written, where their places do not say it."""
    found: dict[str, Any] = {}
    asked: list[tuple[ParameterObject, dict[str, Any]]] = [
        (each.parameter, {}) for each in definition.arguments if each.parameter is not None
    ]
    # A fixed value has no place among the arguments.
    fixed = [(each, {"form": _form_of(each).strip(" ()")}) for each, _ in definition.fixed]
    for parameter, form in (*asked, *fixed):
        members = {
            **form,
            "allowReserved": parameter.allow_reserved,
            "allowEmptyValue": parameter.allow_empty_value,
            "encoding": {name: _encoding(each) for name, each in parameter.encoding.items()},
        }
        found[f"{parameter.location} {parameter.name}"] = {name: value for name, value in members.items() if value}
    media = definition.media
    if media is not None:
        found |= {f"body {name}": _encoding(each) for name, each in media.encoding.items()}
        found |= {f"body prefix {at}": _encoding(each) for at, each in enumerate(media.prefix_encoding)}
        found["body item"] = None if media.item_encoding is None else _encoding(media.item_encoding)
    return {place: form for place, form in sorted(found.items()) if form}


def _encoding(encoding: EncodingObject) -> dict[str, Any]:
    """Return an Encoding Object with its members in the words of the specification."""
    members = {
        "contentType": encoding.content_type,
        "style": encoding.style,
        "explode": encoding.explode,
        "allowReserved": encoding.allow_reserved,
        "headers": {name: _header_value(each) for name, each in sorted(encoding.headers.items())} or None,
        "encoding": {name: _encoding(each) for name, each in sorted(encoding.encoding.items())} or None,
        "prefixEncoding": [_encoding(each) for each in encoding.prefix_encoding] or None,
        "itemEncoding": None if encoding.item_encoding is None else _encoding(encoding.item_encoding),
    }
    return {name: value for name, value in members.items() if value is not None}


def _header_value(header: ParameterObject) -> Any:
    """Return the members of a header's schema that decide its value."""
    schema = header.schema.value if header.schema is not None else None
    return (
        {name: schema[name] for name in ("const", "enum", "default") if name in schema}
        if isinstance(schema, dict)
        else {}
    )


def used_schemes(description: ApiDescription, definitions: Iterable[ToolDefinition]) -> dict[str, Any]:
    """Return the security schemes that the operations of definitions name, as the description has them."""
    names = {name for each in definitions for needed in each.operation.security for name in needed.schemes}
    components = description.root.root.get("components")
    schemes = components.get("securitySchemes") if isinstance(components, dict) else None
    found: dict[str, Any] = {}
    for name in sorted(names):
        value = schemes.get(name) if isinstance(schemes, dict) else None
        if value is not None:
            pointer = f"/components/securitySchemes/{name}"
            found[name] = description.resolve(Node(value, description.root, pointer)).value
    return found

"""The objects of an API description, and the tools made from them.

All versions end here: a Swagger 2.0 document is converted to 3.0 before, and the differences between 3.0, 3.1 and 3.2
are resolved by the readers. Only schemas stay as they were written, because their dialect depends on the version of
their document: they are a `Node`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias

from msgspec import Struct

from toolwire.base_errors import ServerError
from toolwire.protocol import types as t
from toolwire.redaction import repr_without
from toolwire.util.json_pointer import escape_token
from toolwire.util.numbers import BYTES, BYTES_OR_NONE, COUNT, SECONDS, Allowed, check_fields

Version: TypeAlias = Literal["3.0", "3.1", "3.2"]
Location: TypeAlias = Literal["path", "query", "querystring", "header", "cookie"]
Output: TypeAlias = Literal["advertise-loose", "strict", "none"]
#: Methods that only read (RFC 9110 section 9.2.1).
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "QUERY"})


class DescriptionError(ServerError):
    """A description cannot be read.

    The text names the file, the place in it and the remedy.
    """


def digest_of(data: bytes) -> str:
    """Return `sha256:` and the digest of bytes, as lock files have it."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


class ApiDocument(Protocol):
    """One file or answer that was read."""

    @property
    def uri(self) -> str:
        """Return the canonical address, against which relative references are read."""

    @property
    def retrieved_from(self) -> str:
        """Return the address it was read from, the base of relative addresses."""

    @property
    def root(self) -> dict[str, Any]:
        """Return the whole content. Do not change it."""

    @property
    def version(self) -> Version:
        """Return the version whose rules the content follows."""

    @property
    def digest(self) -> str:
        """Return `sha256:` and the digest of the bytes that were read."""

    def place(self, pointer: str) -> str:
        """Return a place for an error text, such as `petstore.yaml:12`. This may search the text."""

    def label(self, pointer: str) -> str:
        """Return a place at no cost, such as `petstore.yaml#/paths/~1pets/get`."""


class Node(NamedTuple):
    """A part of a document, and the document against which its references are read."""

    value: Any
    document: ApiDocument
    pointer: str = ""
    """Its JSON Pointer, for error texts."""

    def at(self, key: str | int) -> Node:
        """Return the part below this one that has this name, or this index."""
        return Node(self.value[key], self.document, f"{self.pointer}/{escape_token(str(key))}")

    @property
    def place(self) -> str:
        """Return where it stands, for error texts."""
        return self.document.place(self.pointer)

    @property
    def label(self) -> str:
        """Return where it stands, for warnings: there may be thousands."""
        return self.document.label(self.pointer)


class ApiDescription(Protocol):
    """A whole API description: the root document and all documents that it refers to."""

    @property
    def root(self) -> ApiDocument: ...

    @property
    def documents(self) -> Mapping[str, ApiDocument]:
        """Return all documents that were read, by their URI."""

    def resolve(self, node: Node) -> Node:
        """Follow a Reference Object, or a chain of them; return any other node unchanged."""

    def referenced(self, reference: str, document: ApiDocument) -> tuple[str, Node]:
        """Return the canonical name (`uri#/pointer`) and the target of a `$ref` inside a schema."""

    def scope(self, node: Node) -> ApiDocument:
        """Return the document against which references below a schema with an `$id` are read (3.1)."""


class ParameterObject(Struct, frozen=True, kw_only=True):
    """A parameter of an operation, or a header of a part or an answer."""

    name: str
    location: Location
    required: bool = False
    schema: Node | None = None
    style: str = "form"
    explode: bool = True
    allow_reserved: bool = False
    allow_empty_value: bool = False
    content: str | None = None
    """The media type in which the value is written, for a parameter with `content` instead of `schema`."""
    encoding: Mapping[str, EncodingObject] = {}
    """The form of each member, for a query string that is written as a form (3.2)."""
    description: str = ""
    deprecated: bool = False


class EncodingObject(Struct, frozen=True, kw_only=True):
    """The encoding of one member of a form, or of one multipart part."""

    content_type: str | None = None
    headers: Mapping[str, ParameterObject] = {}
    style: str | None = None
    explode: bool | None = None
    allow_reserved: bool | None = None
    """None where the description does not say it: a value that is written out, also False, selects the styles of query
    parameters instead of `content_type`."""
    encoding: Mapping[str, EncodingObject] = {}
    """The form of each member of a part that is itself a form (3.2)."""
    prefix_encoding: tuple[EncodingObject, ...] = ()
    item_encoding: EncodingObject | None = None


class MediaTypeObject(Struct, frozen=True, kw_only=True):
    """One form of a body."""

    media_type: str
    schema: Node | None = None
    item_schema: Node | None = None
    """The schema of each item of a stream (3.2)."""
    encoding: Mapping[str, EncodingObject] = {}
    prefix_encoding: tuple[EncodingObject, ...] = ()
    item_encoding: EncodingObject | None = None


class RequestBodyObject(Struct, frozen=True, kw_only=True):
    """The body of a request, in each form that the API takes."""

    content: tuple[MediaTypeObject, ...]
    required: bool = False
    description: str = ""


class ResponseObject(Struct, frozen=True, kw_only=True):
    """An answer that the API may give."""

    status: str
    """Three digits, a range such as `2XX`, or `default`."""
    content: tuple[MediaTypeObject, ...] = ()
    headers: Mapping[str, ParameterObject] = {}
    links: Mapping[str, Any] = {}
    description: str = ""


class ServerVariable(Struct, frozen=True, kw_only=True):
    """A variable in the URL of a server."""

    default: str
    enum: tuple[str, ...] = ()


class ServerObject(Struct, frozen=True, kw_only=True):
    """A place where the API is served."""

    url: str
    document_uri: str
    """The address against which a relative `url` is read."""
    variables: Mapping[str, ServerVariable] = {}
    name: str | None = None
    description: str = ""


class OAuthFlow(Struct, frozen=True, kw_only=True):
    """One way to get an access token."""

    authorization_url: str | None = None
    token_url: str | None = None
    refresh_url: str | None = None
    device_authorization_url: str | None = None
    scopes: Mapping[str, str] = {}


class SecuritySchemeObject(Struct, frozen=True, kw_only=True):
    """A way in which the API knows its callers."""

    name: str
    type: Literal["apiKey", "http", "oauth2", "openIdConnect", "mutualTLS"]
    location: Literal["query", "header", "cookie"] | None = None
    """Where an API key is sent."""
    parameter_name: str | None = None
    """The name of the header, cookie or query parameter of an API key."""
    scheme: str | None = None
    """The scheme of `Authorization` for type `http`, in lower case."""
    flows: Mapping[str, OAuthFlow] = {}
    open_id_connect_url: str | None = None
    metadata_url: str | None = None
    """The authorization server metadata (3.2)."""
    description: str = ""


class SecurityRequirement(Struct, frozen=True):
    """Security schemes that a request needs together, with their scopes.

    An empty one means that nothing is needed.
    """

    schemes: Mapping[str, tuple[str, ...]]


class OperationObject(Struct, frozen=True, kw_only=True):
    """A method at a path."""

    method: str
    """In upper case."""
    path: str
    """The template, as it was written."""
    operation_id: str | None = None
    summary: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    parameters: tuple[ParameterObject, ...] = ()
    request_body: RequestBodyObject | None = None
    responses: Mapping[str, ResponseObject] = {}
    servers: tuple[ServerObject, ...] = ()
    """Those of the operation, else of the path, else of the document."""
    security: tuple[SecurityRequirement, ...] = ()
    """Alternatives. Empty means that nothing is needed."""
    deprecated: bool = False
    extensions: Mapping[str, Any] = {}
    """The members whose names start with `x-`."""
    place: str = ""
    """Where it stands, for error texts."""
    warnings: tuple[str, ...] = ()
    """Parts of the operation that contradict each other, in plain words with their places."""

    @property
    def label(self) -> str:
        """Return how people name it: its id, else method and path."""
        return self.operation_id or f"{self.method} {self.path}"


class LeftOutOperation(Struct, frozen=True, kw_only=True):
    """An operation that becomes no tool, and the reason."""

    method: str
    path: str
    operation_id: str | None = None
    reason: str


class OperationSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of one operation that a person decided.

    None leaves a member to the description or to the whole API.
    """

    name: str | None = None
    title: str | None = None
    description: str | None = None
    annotations: t.ToolAnnotations | None = None
    enabled: bool | None = None
    media_type: str | None = None
    """The form of the request body, where the API takes several."""
    arguments: Mapping[str, str] | None = None
    """The names of arguments, by location and name in the description: `{"path id": "pet_id", "body name": "name"}`."""
    ask: tuple[str, ...] | None = None
    """Parameters that are offered as arguments although they are left out by default.

    These are deprecated ones, headers that the network sets, and optional headers and cookies whose names are those of
    a credential or of a part of the exchange.
    """
    fixed: Mapping[str, Any] | None = None
    """Values that are sent with every call, by the name of a parameter or body member.

    They are not arguments.
    """
    output: Output | None = None
    max_bytes: int | None = None
    """How many bytes of an answer are read."""
    max_tokens: int | None = None
    """How large a result the model gets; a larger one is kept as a resource."""
    inline_bytes: int | None = None
    """How many bytes of an image or a sound are put into the result."""
    max_items: int | None = None
    """How many items are collected by following pages in one call; None follows none."""
    idempotency_header: str | None = None
    """The header that carries a key under which the API runs a request once, such as `Idempotency-Key`.

    Named here, it lets writes be sent again after a lost connection. One that only the description has is sent, too,
    and permits no second attempt. "" sends none.
    """
    timeout: float | None = None
    task: t.TaskSupport | None = None

    def __post_init__(self) -> None:
        check_fields("OperationSettings", _ALLOWED, self, may_be_none=True)


_ALLOWED: Final[dict[str, Allowed]] = {
    "max_bytes": BYTES,
    "max_tokens": COUNT,
    "inline_bytes": BYTES_OR_NONE,
    "max_items": COUNT,
    "timeout": SECONDS,
}


class ToolArgument(Struct, frozen=True, kw_only=True):
    """An argument of a tool, and where it goes in the request."""

    name: str
    parameter: ParameterObject | None = None
    member: str | None = None
    """The member of an object body. An argument with neither parameter nor member is the whole body."""
    is_secret: bool = False
    """Whether its value is kept out of logs."""
    is_upload: bool = False
    """Whether its value is bytes, or a list of them."""


class ToolDefinition(Struct, frozen=True, kw_only=True):
    """A tool made from an operation."""

    operation: OperationObject
    name: str
    title: str | None = None
    description: str = ""
    input_schema: dict[str, Any]
    """The schema that is published, in the keywords that every vendor of models takes."""
    whole_input_schema: Callable[[], dict[str, Any]] | None = None
    """Make the schema of the arguments with all its rules, where that is not the published one."""
    output_schema: dict[str, Any] | None = None
    """The schema that is published."""
    true_output_schema: dict[str, Any] | None = None
    """The schema of the description, against which answers are compared."""
    annotations: t.ToolAnnotations
    is_decided_read: bool = False
    """Whether a person decided that the operation only reads. A hint of the document does not count."""
    arguments: tuple[ToolArgument, ...] = ()
    fixed: tuple[tuple[ParameterObject, Any], ...] = ()
    """Parameters that are sent with every call, and their values."""
    fixed_body: tuple[tuple[ToolArgument, Any], ...] = ()
    """Members of the body, or the whole of it, that are sent with every call."""
    reserved: tuple[tuple[str, str], ...] = ()
    """Location and name of what no object of an argument may give: API keys, parameters that are not arguments, and
    the described members of a body that is one argument."""
    media: MediaTypeObject | None = None
    """The chosen form of the request body."""
    scopes: frozenset[str] = frozenset()
    """The OAuth scopes that the API asks for, whichever of its security requirements is met."""
    select: str | None = None
    """The argument that selects a part of the answer; None where it is not offered."""
    settings: OperationSettings
    warnings: tuple[str, ...] = ()
    """Parts of the description that could not be kept or look wrong, in plain words with their places."""

    def __repr__(self) -> str:
        return repr_without(self, "fixed", "fixed_body")

    def argument_schema(self) -> dict[str, Any]:
        """Make the schema that arguments are checked against.

        A tool asks for it before its first call.
        """
        return self.input_schema if self.whole_input_schema is None else self.whole_input_schema()

    @property
    def is_read(self) -> bool:
        """Return whether a request may be repeated.

        For an unsafe method a person has to decide that.
        """
        is_read = self.operation.method in SAFE_METHODS or self.is_decided_read
        return is_read and self.annotations.read_only_hint is True

    @property
    def secret_names(self) -> frozenset[str]:
        """Return the arguments that no record shows."""
        return frozenset(each.name for each in self.arguments if each.is_secret)

"""`input_required` of 2026-07-28: questions as the answer to a request."""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

from msgspec import UNSET, UnsetType

from toolwire.protocol.open_codec import Wire
from toolwire.protocol.types.base import RequestParams, Result
from toolwire.protocol.types.elicitation import ElicitRequestParams, ElicitResult
from toolwire.protocol.types.roots import ListRootsResult
from toolwire.protocol.types.sampling import CreateMessageRequestParams, CreateMessageResult

__all__ = [
    "CreateMessageRequest",
    "ElicitRequest",
    "InputRequest",
    "InputRequiredResult",
    "InputResponse",
    "ListRootsRequest",
]


class ElicitRequest(Wire, tag_field="method", tag="elicitation/create"):
    """A question to the user."""

    method: ClassVar[Literal["elicitation/create"]] = "elicitation/create"

    params: ElicitRequestParams


class CreateMessageRequest(Wire, tag_field="method", tag="sampling/createMessage"):
    """A question to the client's model."""

    method: ClassVar[Literal["sampling/createMessage"]] = "sampling/createMessage"

    params: CreateMessageRequestParams


class ListRootsRequest(Wire, tag_field="method", tag="roots/list"):
    """A question for the client's roots."""

    method: ClassVar[Literal["roots/list"]] = "roots/list"

    params: RequestParams | UnsetType = UNSET


InputRequest: TypeAlias = ElicitRequest | CreateMessageRequest | ListRootsRequest
InputResponse: TypeAlias = ElicitResult | CreateMessageResult | ListRootsResult


class InputRequiredResult(Result, kw_only=True):
    """The server needs answers before it can go on; at least one of the two members is there (MRTR-2)."""

    result_type: str | UnsetType = "input_required"
    input_requests: dict[str, InputRequest] | UnsetType = UNSET
    request_state: str | UnsetType = UNSET

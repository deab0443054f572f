"""Elicitation: forms and pages for the user, and what the user did with them."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, UnsetType

from toolwire.protocol.open_codec import Wire
from toolwire.protocol.types.base import NestedResult, NotificationParams, RequestParams, TaskMetadata
from toolwire.protocol.types.scalars import ElicitAction

__all__ = [
    "ElicitRequestParams",
    "ElicitResult",
    "ElicitationCompleteNotificationParams",
    "EnumItems",
    "EnumOption",
    "PrimitiveSchemaDefinition",
    "URLElicitationRequiredErrorData",
]


class EnumOption(Wire):
    """One choice of a form field: the value, and the title that the user sees."""

    const: str
    title: str


class EnumItems(Wire, kw_only=True):
    """`items` of a multi-select: `enum` without titles, `anyOf` with."""

    type: str | UnsetType = UNSET
    enum: list[str] | UnsetType = UNSET
    any_of: list[EnumOption] | UnsetType = UNSET
    # SEP-1330 wrote `oneOf`; what shipped is `anyOf`. Read both.
    one_of: list[EnumOption] | UnsetType = UNSET


class PrimitiveSchemaDefinition(Wire, kw_only=True):
    """One field of an elicitation form: string, number, boolean, or any of the five enum forms."""

    type: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    default: str | int | float | bool | list[str] | UnsetType = UNSET
    min_length: int | UnsetType = UNSET
    max_length: int | UnsetType = UNSET
    format: str | UnsetType = UNSET
    minimum: float | int | UnsetType = UNSET
    maximum: float | int | UnsetType = UNSET
    enum: list[str] | UnsetType = UNSET
    enum_names: list[str] | UnsetType = UNSET
    one_of: list[EnumOption] | UnsetType = UNSET
    items: EnumItems | UnsetType = UNSET
    min_items: int | UnsetType = UNSET
    max_items: int | UnsetType = UNSET

    def options(self) -> list[EnumOption] | None:
        """The choices of an enum in any of its forms; None for a field without choices (1.16.2 item 3)."""
        source = self.items if isinstance(self.items, EnumItems) else self
        titled = source.one_of or (source.any_of if isinstance(source, EnumItems) else UNSET)
        if titled:
            return titled
        if not source.enum:
            return None
        names = self.enum_names or source.enum
        return [EnumOption(const, title) for const, title in zip(source.enum, names, strict=False)]


class ElicitRequestParams(RequestParams, kw_only=True):
    """Form mode has `requested_schema`, URL mode has `url`; an absent `mode` means form (ELI-3)."""

    message: str
    mode: str | UnsetType = UNSET
    requested_schema: dict[str, Any] | UnsetType = UNSET
    url: str | UnsetType = UNSET
    elicitation_id: str | UnsetType = UNSET
    task: TaskMetadata | UnsetType = UNSET


class ElicitResult(NestedResult, kw_only=True):
    """The answer to an elicitation: what the user did, and the content of the form."""

    action: ElicitAction
    content: dict[str, Any] | UnsetType | None = UNSET


class ElicitationCompleteNotificationParams(NotificationParams, kw_only=True):
    """The params of `notifications/elicitation/complete` (2025-11-25)."""

    elicitation_id: str


class URLElicitationRequiredErrorData(Wire):
    """The data of the error -32042: the pages that the user has to open (2025-11-25)."""

    elicitations: list[ElicitRequestParams]

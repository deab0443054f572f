"""Servers made from API descriptions: OpenAPI 3.0 to 3.2, and Swagger 2.0."""

from __future__ import annotations

from toolwire.openapi.api import Api, openapi
from toolwire.openapi.definition.chosen_operations import OperationRow
from toolwire.openapi.definition.selection import ALL, tag
from toolwire.openapi.description.documents import Limits
from toolwire.openapi.model import DescriptionError, OperationObject, OperationSettings
from toolwire.openapi.operation_calls import Operation, OperationFailed

__all__ = [
    "ALL",
    "Api",
    "DescriptionError",
    "Limits",
    "Operation",
    "OperationFailed",
    "OperationObject",
    "OperationRow",
    "OperationSettings",
    "openapi",
    "tag",
]

"""Servers with any number of tools of usual size, for measurements and tests."""

from __future__ import annotations

from itertools import product
from typing import Any

from toolwire import Server, Tool

_VERBS = ("create", "list", "update", "delete", "search", "export", "archive", "approve", "refund", "assign")
_THINGS = (
    "invoice", "customer", "order", "ticket", "project", "branch", "release", "channel", "message", "document",
    "calendar", "contract", "shipment", "payment", "employee", "campaign", "report", "dashboard", "pipeline", "backup",
)  # fmt: skip
_PAIRS = list(product(_VERBS, _THINGS))


def many_tools(count: int, start: int = 0, **options: Any) -> Server:
    """Make a server whose tools have about the size of those in the wild: 160 tokens."""
    return Server("many", tools=[_tool(number) for number in range(start, start + count)], **options)


def _tool(number: int) -> Tool:
    verb, thing = _PAIRS[number % len(_PAIRS)]
    name = f"{verb}_{thing}_{number:04}"
    properties: dict[str, Any] = {
        "workspace": {"type": "string", "description": f"The workspace that the {thing} belongs to."},
        f"{thing}_id": {"type": "string", "description": f"The identifier of the {thing}, as list_{thing} returns it."},
        "fields": {
            "type": "array",
            "items": {"type": "string"},
            "description": "The fields of the answer. All of them are returned where this is left out.",
        },
        "limit": {"type": "integer", "minimum": 1, "maximum": 100, "description": "How many results to return."},
    }
    schema = {"type": "object", "properties": properties, "required": ["workspace"]}

    async def run(workspace: str) -> str:
        return f"{name} of {workspace}"

    described = f"{verb.capitalize()} one or more entries of the kind {thing} in a workspace. Needs edit permission."
    return Tool(run, name=name, description=described, input_schema=schema)

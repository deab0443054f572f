"""A small API with two operations, which answers all requests alike: httptools on uvloop, and no framework.

The address is printed when connections are accepted.
"""

from __future__ import annotations

import json
from typing import Any, Final

PET: Final = {
    "id": 7,
    "name": "Rex",
    "tag": "dog",
    "born": "2024-02-29",
    "weight": 12.5,
    "owners": [{"id": 1, "name": "Ada"}, {"id": 2, "name": "Bo"}],
    "note": "Likes cheese. " * 8,
}
_SCHEMA: Final = {
    "type": "object",
    "required": ["id", "name"],
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": "string"},
        "tag": {"type": "string", "enum": ["cat", "dog"]},
        "born": {"type": "string", "format": "date"},
        "weight": {"type": "number", "minimum": 0},
        "owners": {"type": "array", "items": {"$ref": "#/components/schemas/Owner"}},
        "note": {"type": "string"},
    },
}
_OWNER: Final = {"type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string"}}}
_ANSWER: Final = {
    "200": {
        "description": "A pet.",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}},
    }
}


def description(url: str) -> dict[str, Any]:
    """Return the description of the API at an address."""
    names = [("petId", "path", True), ("fields", "query", False), ("x-tenant", "header", True)]
    parameters = [
        {"name": name, "in": place, "required": required, "schema": {"type": "string"}}
        for name, place, required in names
    ]
    body = {"required": True, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "pets", "version": "1"},
        "servers": [{"url": url}],
        "paths": {
            "/pets/{petId}": {"get": {"operationId": "showPet", "parameters": parameters, "responses": _ANSWER}},
            "/pets": {"post": {"operationId": "createPet", "requestBody": body, "responses": _ANSWER}},
        },
        "components": {"schemas": {"Pet": _SCHEMA, "Owner": _OWNER}},
    }


if __name__ == "__main__":
    import bare_httptools
    from serve_http import ready

    bare_httptools.serve("", ready, json.dumps(PET).encode())

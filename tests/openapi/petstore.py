"""A description of a small API, for tests of whole servers."""

from __future__ import annotations

import copy
from typing import Any

PET: dict[str, Any] = {
    "type": "object",
    "required": ["id", "name"],
    "properties": {
        "id": {"type": "integer", "readOnly": True},
        "name": {"type": "string"},
        "tag": {"type": "string", "enum": ["cat", "dog"]},
    },
}
_PET_ANSWER: dict[str, Any] = {
    "description": "A pet.",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}},
}
_ID: dict[str, Any] = {"name": "petId", "in": "path", "required": True, "schema": {"type": "string"}}
_LIMIT: dict[str, Any] = {"name": "limit", "in": "query", "schema": {"type": "integer", "maximum": 100}}

PETSTORE: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "Pets", "version": "1.4"},
    "servers": [{"url": "https://pets.example/v1"}],
    "paths": {
        "/pets": {
            "get": {
                "operationId": "listPets",
                "summary": "List all pets.",
                "tags": ["pets"],
                "parameters": [_LIMIT],
                "responses": {
                    "200": {
                        "description": "Pets.",
                        "content": {
                            "application/json": {
                                "schema": {"type": "array", "items": {"$ref": "#/components/schemas/Pet"}}
                            }
                        },
                    }
                },
            },
            "post": {
                "operationId": "createPet",
                "summary": "Create a pet.",
                "tags": ["pets", "admin"],
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}},
                },
                "responses": {"201": _PET_ANSWER},
            },
        },
        "/pets/{petId}": {
            "parameters": [_ID],
            "get": {"operationId": "showPet", "tags": ["pets"], "responses": {"200": _PET_ANSWER}},
            "delete": {"tags": ["admin"], "responses": {"204": {"description": "Gone."}}},
            "head": {"operationId": "headPet", "responses": {}},
        },
        "/orders": {
            "get": {
                "operationId": "listOrders",
                "summary": "List orders.",
                "tags": ["orders"],
                "responses": {"200": {"description": "Orders.", "content": {"application/json": {"schema": {}}}}},
            }
        },
    },
    "components": {"schemas": {"Pet": PET}},
}


def petstore(**members: Any) -> dict[str, Any]:
    """Return a copy of the description, with other members of the root."""
    return {**copy.deepcopy(PETSTORE), **members}

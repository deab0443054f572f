"""Descriptions in which every part of OpenAPI 3.0, 3.1, 3.2 and Swagger 2.0 that the library reads is there once."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

_SCHEMAS: dict[str, Any] = {
    "Pet": {
        "type": "object",
        "required": ["name", "id", "kind"],
        "properties": {
            "id": {"type": "integer", "format": "int64", "readOnly": True},
            "name": {"type": "string", "minLength": 1, "maxLength": 40, "pattern": "^[a-z]+$"},
            "secret": {"type": "string", "format": "password", "writeOnly": True},
            "kind": {"type": "string", "enum": ["cat", "dog"]},
            "parent": {"$ref": "#/components/schemas/Pet"},
            "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1, "uniqueItems": True},
            "weight": {"type": "number", "minimum": 0, "maximum": 100, "multipleOf": 0.5, "default": 1},
        },
    },
    "Cat": {
        "allOf": [
            {"$ref": "#/components/schemas/Pet"},
            {"type": "object", "properties": {"claws": {"type": "boolean"}}},
        ]
    },
    "Dog": {"allOf": [{"$ref": "#/components/schemas/Pet"}, {"properties": {"bark": {"type": "string"}}}]},
    "Any": {
        "oneOf": [{"$ref": "#/components/schemas/Cat"}, {"$ref": "#/components/schemas/Dog"}],
        "discriminator": {"propertyName": "kind", "mapping": {"cat": "#/components/schemas/Cat", "dog": "Dog"}},
    },
}
_PARAMETERS: list[Any] = [
    {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}, "style": "matrix", "explode": True},
    {
        "name": "filter",
        "in": "query",
        "style": "deepObject",
        "schema": {"type": "object", "properties": {"a": {"type": "string"}}},
    },
    {
        "name": "fields",
        "in": "query",
        "explode": False,
        "allowReserved": True,
        "schema": {"type": "array", "items": {"type": "string"}},
    },
    {"name": "X-Tenant", "in": "header", "required": True, "schema": {"type": "string"}},
    {"name": "session", "in": "cookie", "required": True, "schema": {"type": "string"}},
    {"name": "json", "in": "query", "content": {"application/json": {"schema": {"type": "object"}}}},
    {"$ref": "#/components/parameters/Limit"},
]
OPENAPI_3_0: dict[str, Any] = {
    "openapi": "3.0.3",
    "info": {"title": "Pets", "version": "1"},
    "servers": [{"url": "https://{host}/v1", "variables": {"host": {"default": "api.test", "enum": ["api.test"]}}}],
    "security": [{"key": []}, {"oauth": ["read"]}],
    "tags": [{"name": "pets", "description": "Animals"}],
    "paths": {
        "/pets/{id}": {
            "summary": "One pet",
            "parameters": _PARAMETERS[:1],
            "get": {
                "operationId": "getPet",
                "summary": "Get a pet",
                "description": "Return <b>one</b> pet.",
                "tags": ["pets"],
                "parameters": _PARAMETERS[1:],
                "responses": {
                    "200": {
                        "description": "ok",
                        "headers": {"X-Rate": {"schema": {"type": "integer"}}},
                        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Any"}}},
                        "links": {"parent": {"operationId": "getPet"}},
                    },
                    "404": {"$ref": "#/components/responses/Missing"},
                },
            },
            "put": {
                "operationId": "putPet",
                "requestBody": {"$ref": "#/components/requestBodies/Pet"},
                "responses": {"204": {"description": "done"}},
                "x-mcp": {"name": "replace_pet", "annotations": {"destructiveHint": True}},
            },
        },
        "/upload": {
            "post": {
                "servers": [{"url": "https://upload.test"}],
                "security": [{}],
                "requestBody": {
                    "required": True,
                    "content": {
                        "multipart/form-data": {
                            "schema": {
                                "type": "object",
                                "properties": {
                                    "file": {"type": "string", "format": "binary"},
                                    "meta": {"type": "object"},
                                },
                            },
                            "encoding": {
                                "file": {
                                    "contentType": "image/png",
                                    "headers": {"X-Part": {"schema": {"type": "string"}}},
                                }
                            },
                        }
                    },
                },
                "responses": {
                    "default": {"description": "any", "content": {"text/plain": {"schema": {"type": "string"}}}}
                },
            }
        },
    },
    "components": {
        "schemas": _SCHEMAS,
        "parameters": {
            "Limit": {
                "name": "limit",
                "in": "query",
                "schema": {"type": "integer", "minimum": 1, "exclusiveMinimum": True, "nullable": True},
            }
        },
        "responses": {"Missing": {"description": "no such pet"}},
        "requestBodies": {
            "Pet": {"required": True, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Cat"}}}}
        },
        "securitySchemes": {
            "key": {"type": "apiKey", "in": "header", "name": "X-Key"},
            "oauth": {
                "type": "oauth2",
                "flows": {"clientCredentials": {"tokenUrl": "https://a.test/token", "scopes": {"read": "Read"}}},
            },
        },
    },
}
OPENAPI_3_2: dict[str, Any] = {
    "openapi": "3.2.0",
    "$self": "https://api.test/openapi.json",
    "jsonSchemaDialect": "https://spec.openapis.org/oas/3.2/dialect/2025-09-17",
    "info": {"title": "Pets", "version": "2"},
    "servers": [{"url": "https://api.test", "name": "prod"}],
    "tags": [{"name": "cats", "parent": "pets", "kind": "nav"}, {"name": "pets"}],
    "webhooks": {"new": {"post": {"responses": {}}}},
    "paths": {
        "/pets": {
            "query": {
                "operationId": "searchPets",
                "tags": ["cats"],
                "parameters": [
                    {
                        "name": "q",
                        "in": "querystring",
                        "content": {
                            "application/x-www-form-urlencoded": {
                                "schema": {"type": "object"},
                                "encoding": {"a": {"style": "form"}},
                            }
                        },
                    }
                ],
                "requestBody": {
                    "content": {
                        "application/json": {"schema": {"type": ["object", "null"], "properties": {"a": {"const": 1}}}}
                    }
                },
                "responses": {
                    "200": {
                        "description": "",
                        "content": {"application/jsonl": {"itemSchema": {"$ref": "#/components/schemas/Pet"}}},
                    }
                },
            },
            "additionalOperations": {"PURGE": {"operationId": "purge", "responses": {}}},
        },
        "/mixed": {"$ref": "#/components/pathItems/Mixed"},
    },
    "components": {
        "schemas": {
            "Pet": {
                "$id": "https://schemas.test/pet",
                "$dynamicAnchor": "pet",
                "type": "object",
                "properties": {
                    "children": {
                        "type": "array",
                        "prefixItems": [{"type": "string"}],
                        "items": {"$dynamicRef": "#pet"},
                    },
                    "photo": {"type": "string", "contentEncoding": "base64", "contentMediaType": "image/png"},
                    "x": {"$ref": "#/$defs/x", "description": "beside"},
                },
                "patternProperties": {"^x-": {"type": "string"}},
                "dependentRequired": {"photo": ["x"]},
                "if": {"required": ["photo"]},
                "then": {"required": ["x"]},
                "unevaluatedProperties": False,
                "$defs": {"x": {"$anchor": "x", "type": "integer", "exclusiveMinimum": 3}},
            }
        },
        "mediaTypes": {"Part": {"schema": {"type": "string"}}},
        "pathItems": {
            "Mixed": {
                "post": {
                    "requestBody": {
                        "content": {
                            "multipart/mixed": {
                                "schema": {
                                    "type": "array",
                                    "prefixItems": [{"type": "object"}],
                                    "items": {"type": "string"},
                                },
                                "prefixEncoding": [{"contentType": "application/json"}],
                                "itemEncoding": {"contentType": "text/plain", "headers": {}},
                            }
                        }
                    },
                    "responses": {
                        "200": {"description": "", "content": {"text/event-stream": {"itemSchema": {"type": "object"}}}}
                    },
                }
            }
        },
        "securitySchemes": {
            "device": {
                "type": "oauth2",
                "oauth2MetadataUrl": "https://a.test/.well-known/oauth-authorization-server",
                "flows": {
                    "deviceAuthorization": {
                        "deviceAuthorizationUrl": "https://a.test/device",
                        "tokenUrl": "https://a.test/token",
                        "scopes": {},
                    }
                },
            }
        },
    },
}
SWAGGER_2: dict[str, Any] = {
    "swagger": "2.0",
    "info": {"title": "Pets", "version": "0"},
    "host": "api.test",
    "basePath": "/v0",
    "schemes": ["https"],
    "consumes": ["application/json"],
    "produces": ["application/json"],
    "securityDefinitions": {
        "basic": {"type": "basic"},
        "oauth": {
            "type": "oauth2",
            "flow": "accessCode",
            "authorizationUrl": "https://a.test/a",
            "tokenUrl": "https://a.test/t",
            "scopes": {"r": "R"},
        },
    },
    "parameters": {"Limit": {"name": "limit", "in": "query", "type": "integer"}},
    "responses": {"Missing": {"description": "no", "schema": {"$ref": "#/definitions/Pet"}}},
    "paths": {
        "/pets/{id}": {
            "parameters": [{"name": "id", "in": "path", "required": True, "type": "string"}],
            "get": {
                "parameters": [
                    {
                        "name": "tags",
                        "in": "query",
                        "type": "array",
                        "items": {"type": "string"},
                        "collectionFormat": "pipes",
                    },
                    {"$ref": "#/parameters/Limit"},
                ],
                "responses": {
                    "200": {
                        "description": "",
                        "schema": {"$ref": "#/definitions/Pet"},
                        "headers": {"X": {"type": "integer"}},
                    },
                    "404": {"$ref": "#/responses/Missing"},
                },
            },
            "post": {
                "parameters": [
                    {"name": "pet", "in": "body", "required": True, "schema": {"$ref": "#/definitions/Pet"}}
                ],
                "responses": {"default": {"description": ""}},
            },
        },
        "/upload": {
            "post": {
                "consumes": ["multipart/form-data"],
                "parameters": [
                    {"name": "file", "in": "formData", "type": "file"},
                    {
                        "name": "ids",
                        "in": "formData",
                        "type": "array",
                        "items": {"type": "integer"},
                        "collectionFormat": "multi",
                    },
                ],
                "responses": {"200": {"description": "", "schema": {"type": "file"}}},
            }
        },
    },
    "definitions": {
        "Pet": {
            "type": "object",
            "discriminator": "kind",
            "required": ["kind"],
            "properties": {
                "kind": {"type": "string"},
                "parent": {"$ref": "#/definitions/Pet"},
                "n": {"type": "integer", "x-nullable": True},
            },
        }
    },
}
ALL = (OPENAPI_3_0, {**deepcopy(OPENAPI_3_0), "openapi": "3.1.0"}, OPENAPI_3_2, SWAGGER_2)

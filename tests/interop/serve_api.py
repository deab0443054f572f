"""A server that was made from an API: `python serve_api.py SOURCE [http]`.

SOURCE is the address of the API that `DESCRIPTION` describes, or `fastapi` for an application in this process. Over
HTTP, the port is chosen by the system, and the address is printed.
"""

from __future__ import annotations

import sys
from typing import Any

from toolwire import Server
from toolwire.openapi import ALL, openapi

_TEXT = {"type": "string"}
_PET = {
    "type": "object",
    "required": ["name"],
    "properties": {"id": {"type": "integer", "readOnly": True}, "name": _TEXT, "tag": {"enum": ["cat", "dog"]}},
}
_ID = {"name": "petId", "in": "path", "required": True, "schema": _TEXT}


def _answers(schema: Any, media_type: str = "application/json", status: str = "200") -> dict[str, Any]:
    return {status: {"description": "", "content": {media_type: {"schema": schema}}}}


DESCRIPTION: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "Pets", "version": "1"},
    "paths": {
        "/pets/{petId}": {
            "get": {
                "operationId": "showPet",
                "summary": "Show a pet.",
                "parameters": [
                    _ID,
                    {
                        "name": "fields",
                        "in": "query",
                        "style": "form",
                        "explode": False,
                        "schema": {"type": "array", "items": _TEXT},
                    },
                    {"name": "X-Tenant", "in": "header", "required": True, "schema": _TEXT},
                    {"name": "theme", "in": "cookie", "required": True, "schema": _TEXT},
                    {"name": "Accept-Language", "in": "header", "schema": {"type": "array", "items": _TEXT}},
                    {"name": "size", "in": "cookie", "schema": {"type": "integer"}},
                    {"name": "X-Session-Token", "in": "header", "schema": _TEXT},
                ],
                "responses": _answers(_PET),
            },
        },
        "/pets": {
            "post": {
                "operationId": "createPet",
                "requestBody": {"required": True, "content": {"application/json": {"schema": _PET}}},
                "responses": _answers(_PET, status="201"),
            }
        },
        "/pets/{petId}/photo": {
            "get": {
                "operationId": "showPhoto",
                "parameters": [_ID],
                "responses": _answers({}, "image/png"),
            }
        },
        "/exports": {
            "post": {
                "operationId": "export",
                "responses": {"202": {"description": "", "headers": {"Operation-Location": {"schema": _TEXT}}}},
            }
        },
    },
}


def application() -> Server:
    """Make a server of a FastAPI application, which is called in this process."""
    from typing import Annotated

    from fastapi import FastAPI, Header, HTTPException
    from pydantic import BaseModel, Field

    class Pet(BaseModel):
        name: str = Field(min_length=1)
        tag: str = "cat"

    app = FastAPI(title="Pets")

    async def show(pet: str, tenant: Annotated[str, Header()], fields: str = "all") -> Pet:
        if pet == "nobody":
            raise HTTPException(404, "There is no such pet")
        return Pet(name=pet, tag=f"{tenant} {fields}")

    async def create(pet: Pet) -> Pet:
        return pet

    # The names of types above are local ones, which FastAPI cannot read as texts.
    show.__annotations__ = {"pet": str, "tenant": Annotated[str, Header()], "fields": str, "return": Pet}
    create.__annotations__ = {"pet": Pet, "return": Pet}
    app.get("/pets/{pet}", operation_id="showPet")(show)
    app.post("/pets", operation_id="createPet")(create)
    return Server.from_asgi(app, keep=ALL)


def announce(address: str) -> None:
    print(address, flush=True)


if __name__ == "__main__":
    source, *over = sys.argv[1:]
    if source == "fastapi":
        server = application()
    else:
        server = Server("pets").include(openapi(DESCRIPTION, base_url=source, keep=ALL))
    if over == ["http"]:
        server.run("http", port=0, on_ready=announce)
    else:
        server.run()

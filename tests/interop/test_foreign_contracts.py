"""Requests that generated tools send, judged by Prism: it serves an API from its description and refuses what that
does not allow. Each tool of several descriptions from npm's `@readme/oas-examples` is called with arguments that were
made from its schema.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.interop import peers

from toolwire import Client, Server, schemas
from toolwire.auth import NoCredential
from toolwire.openapi import ALL, Api, openapi
from toolwire.openapi.access.security import read_security_schemes
from toolwire.openapi.model import ToolDefinition
from toolwire.testing.generated import make_values

pytestmark = pytest.mark.timeout(180)

EXAMPLES = peers.node_folder() / "node_modules" / "@readme" / "oas-examples"
NO_OBJECTS = "it cannot read objects that are separated by spaces or bars"
COMMAS = "it splits a path at commas before it looks at the style"
NEEDS_ALL = "it fails where a header with an array or object is left out"
STYLES = {
    **dict.fromkeys(["paths_standard", "paths_simple_exploded", "paths_simple_nonExploded"], COMMAS),
    **dict.fromkeys(["paths_label_nonExploded", "paths_matrix_nonExploded"], COMMAS),
    "formData_standard": "it reads no JSON in the parts of a form, which is how OpenAPI writes objects there",
    **dict.fromkeys(["headers_standard", "headers_simple_exploded", "headers_simple_nonExploded"], NEEDS_ALL),
    **dict.fromkeys(["query_pipeDelimited_nonExploded", "query_spaceDelimited_nonExploded"], NO_OBJECTS),
    **dict.fromkeys(["form_data_pipeDelimited_nonExploded", "formData_spaceDelimited_nonExploded"], NO_OBJECTS),
}
#: The descriptions, and the tools that Prism cannot judge, with the reason.
DOCUMENTS: dict[str, dict[str, str]] = {
    "2.0/json/petstore.json": {},
    "2.0/json/petstore-expanded.json": {},
    "2.0/json/schema-circular.json": {},
    "3.0/json/circular-request-bodies.json": {},
    "3.0/json/complex-nesting.json": {},
    "3.0/json/file-uploads.json": {"put_anything_multipart-formdata": "it reads no arrays of files"},
    "3.0/json/form-data.json": {},
    "3.0/json/link-example.json": {},
    "3.0/json/parameters-common.json": {},
    "3.0/json/parameters-cookies.json": {},
    "3.0/json/parameters-extreme.json": {},
    "3.0/json/parameters-style.json": STYLES,
    "3.0/json/petstore.json": {},
    "3.0/json/readme-legacy.json": {},
    "3.0/json/schema-additional-properties.json": {},
    "3.0/json/schema-encoding-style.json": {},
    "3.0/json/schema-enums.json": {},
    "3.0/json/schema-types.json": {},
    "3.0/json/security.json": {"post_status_401": "it answers 401, as the description says"},
    "3.0/json/star-trek.json": {},
    "3.0/json/uspto.json": {},
    "3.1/json/parameters-style.json": STYLES,
    "3.1/json/petstore.json": {},
    "3.1/json/readme.json": {"askOwlbot": "it wants a parameter Accept, which OpenAPI says is to be ignored"},
    "3.1/json/schema-encoding-style.json": {},
    "3.1/json/train-travel.json": {},
}
# Complaints about formats, which are hints: `int32` is a range to Prism, and `hostname` a pattern.
HINTS = re.compile(r"must match format|must be [<>]= |must match pattern \"\^\[\\w\\d\+")
# Refusals of ours, before a request is sent: paths have no empty segments, no dots and no control characters, and
# headers are ASCII.
NOT_SENT = re.compile(r"'[\w.-]+' is (?:a part of the path and must not|sent in a header, which takes ASCII)")
CALLS_OF_A_TOOL = 5


class Judge:
    """Prism with all descriptions, and its complaints."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._read = 0
        self.addresses: dict[str, str] = {}

    def complaints(self) -> list[str]:
        """Return the complaints since the last time."""
        with self._log.open(encoding="utf-8") as file:
            file.seek(self._read)
            lines = file.readlines()
            self._read = file.tell()
        return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    log = tmp_path_factory.mktemp("prism") / "log"
    files = [str(EXAMPLES / each) for each in DOCUMENTS]
    command = [str(peers.needed_node()), str(peers.node_script("serve_prism.mjs")), *files]
    with log.open("wb") as output, subprocess.Popen(command, cwd=peers.node_folder(), stdout=output) as process:
        try:
            found = Judge(log)
            while not (lines := found.complaints()):
                assert process.poll() is None, "Prism did not start"
            addresses: Any = lines[0]
            found.addresses = {each: addresses[str(EXAMPLES / each)] for each in DOCUMENTS}
            yield found
        finally:
            process.kill()


def api_of(document: str, judge: Judge) -> Api:
    """Read a description. Each of its security schemes gets a credential."""
    source, address = EXAMPLES / document, judge.addresses[document]
    credentials: dict[str, Any] = {}
    for name, scheme in read_security_schemes(openapi(source, base_url=address).description).items():
        if scheme.type == "mutualTLS":
            credentials[name] = NoCredential()
        else:
            credentials[name] = ("user", "a secret") if scheme.scheme == "basic" else "a-secret"
    return openapi(source, base_url=address, keep=ALL, credentials=credentials)


def arguments_of(definition: ToolDefinition) -> list[dict[str, Any]]:
    """Make arguments for calls of a tool. A file is base64."""
    schema = definition.argument_schema()
    validator = schemas.compile(schema, what=definition.name)
    uploads = {each.name for each in definition.arguments if each.is_upload}
    parameters = {each.name for each in definition.arguments if each.parameter is not None}
    found = []
    for each in make_values(schema, validator, Random(1), 40):
        each.pop(definition.select or "", None)
        each |= {name: ["aGk=", "aG8="] if isinstance(each[name], list) else "aGk=" for name in uploads & each.keys()}
        if each not in found and not any(is_odd(each[name]) for name in parameters & each.keys()):
            found.append(each)
    return found[:CALLS_OF_A_TOOL]


def is_odd(value: Any) -> bool:
    """Return whether a parameter has an empty part, or one that no path may have.

    Prism takes empty ones for missing, and fails where RFC 6570 leaves out `=`.
    """
    if isinstance(value, str):
        return not value or not value.isprintable() or ".." in value
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return value is None or (parts is not None and (not parts or any(map(is_odd, parts))))


@pytest.mark.sampled
@pytest.mark.parametrize("document", DOCUMENTS)
async def test_every_request_is_one_that_the_description_allows(document: str, judge: Judge) -> None:
    api = api_of(document, judge)
    server = Server("front")
    server.include(api)
    seen: Counter[str] = Counter()
    wrong = []
    async with Client(server) as client:
        for definition in api.definitions:
            if definition.name in DOCUMENTS[document]:
                continue
            for arguments in arguments_of(definition):
                result = await client.call_tool(definition.name, arguments)
                complaints = judge.complaints()
                if result.is_error and NOT_SENT.search(result.text):
                    seen["not sent"] += 1
                elif not complaints and (not result.is_error or " answered " in result.text):
                    seen["accepted"] += 1
                elif complaints and any(HINTS.search(each) for each in complaints):
                    seen["of another format"] += 1
                else:
                    wrong.append((definition.name, arguments, complaints or result.text))
    print(f"{document}: {len(api.definitions)} tools, {dict(seen)}", *wrong, sep="\n")
    assert not wrong
    assert seen["accepted"] >= (len(api.definitions) - len(DOCUMENTS[document])) / 2

"""Written code: typed modules of descriptions, also of hostile ones, that a type checker takes and that run."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.cases import cases
from tests.cli.command import Command
from tests.openapi.petstore import petstore

from toolwire import testing
from toolwire.client import Client
from toolwire.openapi import ALL, openapi
from toolwire.openapi.code.code_names import PythonNames, class_name, snake_name
from toolwire.openapi.code.code_texts import docstring, quoted
from toolwire.openapi.code.written_code import WrittenModules, written_code

# Most of the time goes to the types of this library, which are the same in the next run.
CACHE = Path(__file__).parents[2] / ".mypy_cache" / "written"
TEXT = {"type": "string"}

# Texts and names of somebody who wants to be run.
HOSTILE = [
    '"""\nimport os; os.abort()\n"""',
    "\\",
    'ends with a quote"',
    "'); import os; os.abort() #",
    "line\r\nbreaks\u2028and\u0085others\x0c\x00",
    "{x} %s ${y} \\N{BULLET} \\x41",
    "Args:\n    secret: told\n\nParameters\n----------\nx : int\n:param y: told",
    "\u202eright to left\u2066",
    "\ud800 half a character",
    "ünï¢ödé 名前",
    "",
    "class",
    "9lives",
    "__init__",
    "a.b/c d-e",
]

# JSON has no half characters.
IN_JSON = [text for text in HOSTILE if "\ud800" not in text]


def described(paths: dict[str, Any], **components: Any) -> dict[str, Any]:
    return {
        "openapi": "3.1.0",
        "info": {"title": "Things", "version": "1"},
        "servers": [{"url": "https://things.example/v1"}],
        "paths": paths,
        "components": {"schemas": components},
    }


def answering(schema: dict[str, Any]) -> dict[str, Any]:
    return {"200": {"description": "", "content": {"application/json": {"schema": schema}}}}


def taking(schema: dict[str, Any]) -> dict[str, Any]:
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def hostile() -> dict[str, Any]:
    """Return a description whose names and texts are all hostile."""
    members = {name: {"type": "string", "description": text} for name, text in zip(IN_JSON, IN_JSON[::-1], strict=True)}
    record = {"type": "object", "description": IN_JSON[0], "properties": {**members, "list": {"type": "array"}}}
    paths: dict[str, Any] = {}
    for at, text in enumerate(IN_JSON):
        parameters = [{"name": name, "in": "query", "description": text, "schema": TEXT} for name in IN_JSON if name]
        paths[f"/{at}"] = {
            "post": {
                "operationId": f"{text}{at}",
                "summary": text,
                "description": text,
                "parameters": parameters,
                "requestBody": taking(
                    {"type": "object", "properties": {"record": {"$ref": "#/components/schemas/call"}}}
                ),
                "responses": answering({"$ref": "#/components/schemas/call"}),
            }
        }
    return json.loads(json.dumps(described(paths, call=record)))  # type: ignore[no-any-return]


def shapes() -> dict[str, Any]:
    """Return a description with every kind of schema."""
    tree = {
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": TEXT,
            "id": {"type": "integer", "readOnly": True},
            "parent": {"$ref": "#/components/schemas/Tree"},
            "children": {"type": "array", "items": {"$ref": "#/components/schemas/Tree"}},
            "_links": {"type": "object", "additionalProperties": {"type": "object", "properties": {"href": TEXT}}},
            "+1": {"type": ["integer", "null"]},
            "kind": {"enum": ["leaf", "twig", None]},
            "list": {"type": "array", "items": {"anyOf": [TEXT, {"type": "integer"}, {"type": "object"}]}},
        },
    }
    both = {
        "allOf": [
            {"$ref": "#/components/schemas/Tree"},
            {"type": "object", "required": ["extra"], "properties": {"extra": {"type": "number"}}},
        ]
    }
    words = {"enum": [f"a long word with the number {n}" for n in range(9)]}
    nested = {"type": "array", "items": {"$ref": "#/components/schemas/Nested"}}
    parameters = [
        {"name": "word", "in": "query", "schema": words},
        {"name": "level", "in": "query", "required": True, "schema": {"enum": [1, 2, 3]}},
        {"name": "call", "in": "query", "schema": {"type": "boolean"}},
        {"name": "self", "in": "query", "schema": {"oneOf": [TEXT, {"type": "number"}, {"type": "integer"}]}},
    ]
    posted = {
        "type": "object",
        "required": ["note"],
        "properties": {"note": {"type": ["string", "null"]}, "tree": both},
    }
    return described(
        {
            "/trees": {
                "get": {
                    "operationId": "listTrees",
                    "parameters": parameters,
                    "responses": answering({"type": "array", "items": {"$ref": "#/components/schemas/Tree"}}),
                },
                "post": {
                    "operationId": "addTree",
                    "requestBody": taking(posted),
                    "responses": answering({"anyOf": [{"$ref": "#/components/schemas/Tree"}, {"type": "null"}]}),
                },
            },
            "/trees/{name}": {
                "get": {"responses": answering({"$ref": "#/components/schemas/Both"})},
                "put": {"requestBody": taking({"$ref": "#/components/schemas/Nested"}), "responses": {"204": {}}},
                "parameters": [{"name": "name", "in": "path", "required": True, "schema": TEXT}],
            },
            "/anything": {"get": {"operationId": "anything", "responses": answering({})}},
            "/picture": {"get": {"operationId": "picture", "responses": {"200": {"content": {"image/png": {}}}}}},
        },
        Tree=tree,
        Both=both,
        Nested=nested,
    )


DESCRIPTIONS = {"pets": petstore(), "hostile": hostile(), "shapes": shapes()}


def code_of(source: dict[str, Any]) -> WrittenModules:
    api = openapi(source, keep=ALL, base_uri="https://things.example/openapi.json")
    return written_code(api.description, api.definitions, name="demo", lock="api.lock.json")


@pytest.fixture
def toolwire(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    return Command(capsys, monkeypatch)


@pytest.fixture
def projects(toolwire: Command, tmp_path: Path) -> Path:
    """Write a project for each description. Their modules have different names, so that one run checks all types."""
    for name, source in DESCRIPTIONS.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(source))
        done = toolwire("new", str(tmp_path / name), "--from", str(tmp_path / f"{name}.json"), "--all")
        assert done.status == 0, done.err
        for module in ("server", "models"):
            text = (tmp_path / name / f"{module}.py").read_text().replace("from models", f"from {name}_models")
            (tmp_path / name / f"{name}_{module}.py").write_text(text)
    return tmp_path


def load(folder: Path, module: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(folder))
    specification = importlib.util.spec_from_file_location(module, folder / f"{module}.py")
    assert specification is not None and specification.loader is not None
    loaded = importlib.util.module_from_spec(specification)
    monkeypatch.setitem(sys.modules, module, loaded)
    specification.loader.exec_module(loaded)
    return loaded


@pytest.mark.covers("OA-1.10")
@pytest.mark.slow
async def test_written_code_has_types_and_calls_its_operations(projects: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [str(projects / name / f"{name}_{module}.py") for name in DESCRIPTIONS for module in ("server", "models")]
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(CACHE), *files],
        capture_output=True,
        text=True,
        cwd=projects,
        env={**os.environ, "MYPYPATH": os.pathsep.join(str(projects / name) for name in DESCRIPTIONS)},
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    for name, count in (("pets", 5), ("hostile", len(IN_JSON)), ("shapes", 6)):
        module = load(projects / name, f"{name}_server", monkeypatch)
        replayed = await testing.replay(module.server, module.api)
        assert len([each for each in replayed if each.result is not None]) == count


@pytest.mark.covers("OA-1.10")
def test_the_project_passes_its_own_test(projects: Path) -> None:
    for name in ("pets", "hostile"):
        tested = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "-p", "no:asyncio"],
            capture_output=True,
            text=True,
            cwd=projects / name,
        )
        assert tested.returncode == 0, tested.stdout + tested.stderr
        assert "1 passed" in tested.stdout


@pytest.mark.covers("OA-1.11")
@cases("name", DESCRIPTIONS)
def test_nothing_of_a_description_is_code(name: str) -> None:
    """Every statement of a module is one that is written for every description."""
    code = code_of(DESCRIPTIONS[name])
    server, models = ast.parse(code.server), ast.parse(code.models or "")
    assert {type(node) for node in server.body} <= {
        ast.Expr, ast.ImportFrom, ast.Assign, ast.FunctionDef, ast.AsyncFunctionDef, ast.If
    }  # fmt: skip
    assert {type(node) for node in models.body} <= {ast.Expr, ast.ImportFrom, ast.ClassDef, ast.Assign, ast.AnnAssign}
    for function in (node for node in server.body if isinstance(node, ast.AsyncFunctionDef)):
        assert [type(node) for node in function.body[:1]] == [ast.Expr]
        assert {type(node) for node in function.body[1:]} <= {ast.Assign, ast.AnnAssign, ast.Return}
    names = {node.id for node in ast.walk(server) if isinstance(node, ast.Name)}
    called = {ast.unparse(node.func) for node in ast.walk(server) if isinstance(node, ast.Call)}
    assert called <= {
        "Server", "openapi", "Path", "Path(__file__).with_name", "arguments.items", "api.override", "call", "given",
        "server.include", "server.run",
    }  # fmt: skip
    assert not names & {"os", "eval", "exec", "__import__"}


def check_that_texts_stay_texts(text: str) -> None:
    assert ast.literal_eval(quoted(text)) == text
    for lines in (docstring(text, [("name", text)], "    "), docstring(text, [], "    ")):
        (function,) = ast.parse("\n".join(["def f(name):", *lines])).body
        assert isinstance(function, ast.FunctionDef)
        (said,) = function.body
        assert isinstance(said, ast.Expr) and isinstance(said.value, ast.Constant)
        assert "\x00" not in str(said.value.value) and "\u202e" not in str(said.value.value)


@pytest.mark.covers("OA-1.11")
@cases("text", HOSTILE)
def test_texts_stay_texts(text: str) -> None:
    check_that_texts_stay_texts(text)


@pytest.mark.covers("OA-1.11")
@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=st.sampled_from("\"'\\n\n {}#:a\x00\u202e"), max_size=12))
@example('ends with \\"')
@example('\\""""')
def test_any_text_stays_one_docstring(text: str) -> None:
    check_that_texts_stay_texts(text)


def test_a_text_names_no_arguments() -> None:
    from toolwire.server.binding.docstrings import parse

    told = ast.literal_eval("\n".join(docstring(HOSTILE[6], [("name", "A name.\n\nArgs:\n    other: told")], "")))
    assert parse(told).parameters == {"name": "A name. Args: other: told"}


@cases(
    ("text", "snake", "pascal"),
    [
        ("petId", "pet_id", "PetId"),
        ("HTTPStatus", "http_status", "HTTPStatus"),
        ("repos/list-releases", "repos_list_releases", "ReposListReleases"),
        ("per page", "per_page", "PerPage"),
        ("9lives", "thing_9lives", "Thing9lives"),
        ("名前", "thing", "Thing"),
        ("__class__", "class", "Class"),
        ("", "thing", "Thing"),
    ],
)
def test_names(text: str, snake: str, pascal: str) -> None:
    assert snake_name(text, "thing") == snake
    assert class_name(text, "Thing") == pascal


def test_names_are_given_out_once() -> None:
    names = PythonNames(["api"])
    assert [names.reserve(name) for name in ("pet", "pet", "pet", "class", "api", "api")] == [
        "pet", "pet_", "pet_2", "class_", "api_", "api_2",
    ]  # fmt: skip


def test_types_of_schemas() -> None:
    code = code_of(shapes())
    models = code.models or ""
    for line in (
        "AddTreeTree = TypedDict(",
        """        "kind": 'NotRequired[Literal["leaf", "twig"] | None]',""",
        '        "+1": "NotRequired[int | None]",',
        '        "children": "list[Tree]",',
        '        "_links": "dict[str, TreeLinksValue]",',
        "class TreeLinksValue(TypedDict, total=False):",
        "ListTreesWord: TypeAlias = Literal[",
        '    "a long word with the number 8",',
    ):
        assert line in models, line
    for line in (
        "    level: Literal[1, 2, 3],",
        "    word: ListTreesWord | None = None,",
        "    call_: bool | None = None,",
        "    self: str | float | None = None,",
        ") -> list[Tree]:",
        "    answer: Tree | None = await call(",
        'given({"note": note, "tree": tree}, "note")',
        "async def anything(call: Operation) -> Any:",
        "async def picture(call: Operation) -> ToolResult:",
    ):
        assert line in code.server, line
    # A type of an answer is loose.
    assert '"kind": "Any"' in models


async def test_the_written_tools_are_those_of_the_lock(projects: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = load(projects / "pets", "pets_server", monkeypatch)
    async with Client(module.server) as client:
        tools = {tool.name: tool for tool in await client.list_tools()}
    assert sorted(tools) == ["createPet", "delete_pets_by_petId", "listOrders", "listPets", "showPet"]
    assert tools["listPets"].annotations.read_only_hint is True  # type: ignore[union-attr]
    assert tools["createPet"].input_schema["properties"]["tag"]["enum"] == ["cat", "dog"]
    assert "petId" not in tools["showPet"].input_schema["properties"]


def test_a_description_of_several_files_comes_along(toolwire: Command, tmp_path: Path) -> None:
    """The project has its own copies of the files and of the overlay, so that it can be moved."""
    (tmp_path / "from" / "parts").mkdir(parents=True)
    paths = {"/pets": {"get": {"operationId": "listPets", "responses": answering({"$ref": "parts/pet.json"})}}}
    (tmp_path / "from" / "api.json").write_text(json.dumps(described(paths)))
    (tmp_path / "from" / "parts" / "pet.json").write_text(json.dumps({"type": "object", "properties": {"name": TEXT}}))
    update = {"target": "$.paths['/pets'].get", "update": {"summary": "List all the pets."}}
    overlay = {"overlay": "1.0.0", "info": {"title": "Texts", "version": "1"}, "actions": [update]}
    (tmp_path / "texts.json").write_text(json.dumps(overlay))
    made = tmp_path / "demo"
    words = ["--from", str(tmp_path / "from" / "api.json"), "--overlay", str(tmp_path / "texts.json"), "--all"]
    done = toolwire("new", str(made), *words)
    assert done.status == 0, done.err
    assert {str(path.relative_to(made)) for path in made.rglob("*.json")} == {
        "api.json", "api.lock.json", "texts.json", os.path.join("parts", "pet.json")
    }  # fmt: skip
    assert "List all the pets." in (made / "server.py").read_text()
    moved = made.rename(tmp_path / "moved")
    assert toolwire("openapi", "check", str(moved / "api.lock.json")).status == 0


def test_a_project_of_nothing_is_not_made(toolwire: Command, tmp_path: Path) -> None:
    (tmp_path / "api.json").write_text(json.dumps(petstore()))
    for words, told in (
        ([], "nothing is chosen"),
        (["--operation", "listPet"], "did you mean 'listPets'?"),
    ):
        done = toolwire("new", str(tmp_path / "demo"), "--from", str(tmp_path / "api.json"), *words)
        assert done.status in (1, 2)
        assert told in done.err
        assert not (tmp_path / "demo").exists()
    done = toolwire("new", str(tmp_path / "demo"), "--all")
    assert (done.status, "are for --from" in done.err) == (2, True)

"""Write the JSON schema of a gateway's file, and the page of all its keys, from the classes of its tables.

    .venv/bin/python scripts/gateway_file.py            # write both again
    .venv/bin/python scripts/gateway_file.py --check    # say which differs, and fail if one does

A key is an attribute of a class in `toolwire.gateway.config`. The text behind the attribute describes it.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import inspect as kinds

from toolwire.gateway.config.tables import OPEN_TABLES, FileTables
from toolwire.gateway.file_types import PATH, SECRET

ROOT: Final = Path(__file__).resolve().parent.parent
SCHEMA: Final = ROOT / "src" / "toolwire" / "gateway" / "config" / "schema.json"
PAGE: Final = ROOT / "docs" / "reference" / "gateway-file.md"
#: The part of the page that this script writes.
BEGIN, END = "<!-- keys: begin -->\n", "<!-- keys: end -->\n"
_REFERENCE: Final = "Reference"
#: A number or a switch may come from an environment variable, which is a text.
_VARIABLE: Final = {"type": "string", "pattern": r"\$\{"}


# --- what there is -------------------------------------------------------------------------------------------------


@cache
def tables() -> dict[type[Any], tuple[str, kinds.StructType]]:
    """Return all tables by their classes, each with the first key where it stands, in the order of the file."""
    found: dict[type[Any], tuple[str, kinds.StructType]] = {}

    def follow(key: str, type_: kinds.Type) -> None:
        if isinstance(type_, kinds.StructType):
            if type_.cls in found:
                return
            found[type_.cls] = (key, type_)
            for field in type_.fields:
                follow(f"{key}.{field.encode_name}".lstrip("."), field.type)
        for inner in _inner(type_):
            follow(f"{key}.NAME" if isinstance(type_, kinds.DictType) else key, inner)

    follow("", kinds.type_info(FileTables))
    return found


def heading(key: str, table: kinds.StructType) -> str:
    kind = "" if table.tag is None else f" of the kind {table.tag}"
    return f"{key or 'The file'}{kind}"


def slug(text: str) -> str:
    """Return the address of a heading inside its page."""
    return re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", text).strip().lower())


def _inner(type_: kinds.Type) -> Iterator[kinds.Type]:
    if isinstance(type_, kinds.UnionType):
        yield from type_.types
    elif isinstance(type_, kinds.Metadata):
        yield type_.type
    elif isinstance(type_, kinds.DictType):
        yield type_.value_type
    elif isinstance(type_, kinds.CollectionType):
        yield type_.item_type
    elif isinstance(type_, kinds.TupleType):
        yield from type_.item_types


@cache
def texts(cls: type) -> dict[str, str]:
    """Return the texts behind the attributes of a class and of the classes that it is made of."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if not issubclass(base, msgspec.Struct) or base is msgspec.Struct:
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        assert isinstance(body, ast.ClassDef)
        for attribute, text in zip(body.body, body.body[1:], strict=False):
            is_text = isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
            if isinstance(attribute, ast.AnnAssign) and isinstance(attribute.target, ast.Name) and is_text:
                found[attribute.target.id] = inspect.cleandoc(str(ast.literal_eval(text.value)))  # type: ignore[attr-defined]
    return found


def text_of(cls: type, field: kinds.Field) -> str:
    return texts(cls).get(field.name, "").partition("\n\n")[0].replace("\n", " ")


def default_of(field: kinds.Field) -> Any:
    """Return the default as JSON; None where there is none."""
    if field.default is msgspec.NODEFAULT:
        return None
    return msgspec.to_builtins(field.default)


# --- the schema ----------------------------------------------------------------------------------------------------


def schema() -> dict[str, Any]:
    found = dict(tables())
    _, root = found.pop(FileTables)
    defs = {cls.__name__: table_schema(each) for cls, (_, each) in found.items()}
    defs[_REFERENCE] = {
        "description": "A secret that stands elsewhere: in an environment variable, or in a file.",
        "type": "object",
        "properties": {
            "env": {"type": "string", "description": "The name of an environment variable."},
            "file": {"type": "string", "description": "The path of a file, relative to the folder of this file."},
        },
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The file of a Toolwire gateway",
        **table_schema(root),
        "$defs": dict(sorted(defs.items())),
    }


def table_schema(table: kinds.StructType) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    if table.tag_field is not None:
        properties[table.tag_field] = {"const": table.tag}
    for field in table.fields:
        made = {"description": text_of(table.cls, field), **value_schema(field.type)}
        default = default_of(field)
        properties[field.encode_name] = made if default is None else {**made, "default": default}
    needed = [*filter(None, [table.tag_field]), *(field.encode_name for field in table.fields if field.required)]
    return {
        "description": (table.cls.__doc__ or "").partition("\n\n")[0].replace("\n", " ").replace("     ", " "),
        "type": "object",
        "properties": properties,
        **({"required": needed} if needed else {}),
        **({} if table.cls in OPEN_TABLES else {"additionalProperties": False}),
    }


def value_schema(type_: kinds.Type) -> dict[str, Any]:
    if isinstance(type_, kinds.Metadata):
        plain = value_schema(type_.type)
        return {"anyOf": [plain, {"$ref": f"#/$defs/{_REFERENCE}"}]} if SECRET in (type_.extra or {}) else plain
    if isinstance(type_, kinds.StructType):
        return {"$ref": f"#/$defs/{type_.cls.__name__}"}
    if isinstance(type_, kinds.UnionType):
        several = [value_schema(each) for each in type_.types if not isinstance(each, kinds.NoneType)]
        return several[0] if len(several) == 1 else {"anyOf": several}
    if isinstance(type_, kinds.LiteralType):
        return {"enum": list(type_.values)}
    if isinstance(type_, kinds.DictType):
        return {"type": "object", "additionalProperties": value_schema(type_.value_type)}
    if isinstance(type_, kinds.CollectionType):
        return {"type": "array", "items": value_schema(type_.item_type)}
    if isinstance(type_, kinds.TupleType):
        items = [value_schema(each) for each in type_.item_types]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    if isinstance(type_, kinds.StrType):
        return {"type": "string"}
    words = {kinds.IntType: "integer", kinds.FloatType: "number", kinds.BoolType: "boolean"}
    word = words.get(type(type_))
    return {} if word is None else {"anyOf": [{"type": word}, _VARIABLE]}


# --- the page ------------------------------------------------------------------------------------------------------


def page_tables() -> str:
    """Return one section for each table, with all its keys."""
    parts: list[str] = []
    for key, table in tables().values():
        parts.append(f"### {heading(key, table)}\n\n{_flat(table.cls.__doc__)}\n")
        rows = ["| key | value | default | meaning |", "|---|---|---|---|"]
        if table.tag_field is not None:
            rows.append(f'| `{table.tag_field}` | `"{table.tag}"` | needed | |')
        for field in table.fields:
            default = "needed" if field.required else _shown(default_of(field))
            meaning = text_of(table.cls, field)
            rows.append(f"| `{field.encode_name}` | {value_text(field.type)} | {default} | {meaning} |")
        parts.append("\n".join(rows) + "\n" if len(rows) > 2 else "")
    return "\n".join(each for each in parts if each)


def value_text(type_: kinds.Type) -> str:
    """Return the type of a value in words, with links to the tables."""
    if isinstance(type_, kinds.Metadata):
        marks = type_.extra or {}
        return "secret" if SECRET in marks else "path" if PATH in marks else value_text(type_.type)
    if isinstance(type_, kinds.StructType):
        key, table = tables()[type_.cls]
        return f"[{table.tag or 'table'}](#{slug(heading(key, table))})"
    if isinstance(type_, kinds.UnionType):
        several = [value_text(each) for each in type_.types if not isinstance(each, kinds.NoneType)]
        return " or ".join(several)
    if isinstance(type_, kinds.LiteralType):
        return ", ".join(f"`{each}`" for each in type_.values)
    if isinstance(type_, kinds.DictType):
        return f"by name: {value_text(type_.value_type)}"
    if isinstance(type_, kinds.CollectionType):
        return f"list of {value_text(type_.item_type)}"
    if isinstance(type_, kinds.TupleType):
        return f"list of {len(type_.item_types)} numbers"
    words = {
        kinds.StrType: "text",
        kinds.IntType: "whole number",
        kinds.FloatType: "number",
        kinds.BoolType: "true or false",
    }
    return words.get(type(type_), "anything")


def _shown(default: Any) -> str:
    return "" if default in (None, [], {}) else f"`{json.dumps(default)}`"


def _flat(text: str | None) -> str:
    return " ".join(inspect.cleandoc(text or "").partition("\n\n")[0].split())


def written() -> dict[Path, str]:
    """Return the content that each of the two files has to have."""
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return {
        SCHEMA: json.dumps(schema(), indent=1, ensure_ascii=False) + "\n",
        PAGE: f"{before}{BEGIN}\n{page_tables()}\n{END}{after}",
    }


def main() -> int:
    different = [
        path for path, text in written().items() if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]
    for path in different:
        if "--check" in sys.argv:
            sys.stderr.write(f"{path.name} differs from the tables: run python scripts/gateway_file.py\n")
        else:
            path.write_text(written()[path], encoding="utf-8")
    return 1 if different and "--check" in sys.argv else 0


if __name__ == "__main__":
    raise SystemExit(main())

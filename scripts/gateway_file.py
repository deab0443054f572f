"""Write the JSON schema of a gateway's file, the page of all its keys, and the options of `Gateway.add`.

    .venv/bin/python scripts/gateway_file.py            # write all of them again
    .venv/bin/python scripts/gateway_file.py --check    # say which differs, and fail if one does

A key is an attribute of a class in `toolwire.gateway.config`, or of `UpstreamSettings`. The text behind the attribute
describes it. The parameters of `Gateway.add` and the list in its docstring are the attributes of `UpstreamOptions`.
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
from typing import Any, Final, ForwardRef, NamedTuple, get_args

import msgspec
from msgspec import inspect as kinds

from toolwire.gateway.config.tables import OPEN_TABLES, FileTables
from toolwire.gateway.file_types import PATH, SECRET
from toolwire.gateway.upstream_options import UpstreamOptions, UpstreamSettings

ROOT: Final = Path(__file__).resolve().parent.parent
SCHEMA: Final = ROOT / "src" / "toolwire" / "gateway" / "config" / "schema.json"
GATEWAY: Final = ROOT / "src" / "toolwire" / "gateway" / "gateway.py"
PAGE: Final = ROOT / "docs" / "reference" / "gateway-file.md"
#: The part of the page that this script writes.
BEGIN, END = "<!-- keys: begin -->\n", "<!-- keys: end -->\n"
_REFERENCE: Final = "Reference"
#: How the list of options in a docstring begins.
_ITEM: Final = "        * `"
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


class Attribute(NamedTuple):
    """An attribute of a class as its source has it: the type, the default, and the text behind it."""

    type: str
    default: str
    text: str


@cache
def attributes(cls: type) -> dict[str, Attribute]:
    """Return the attributes of a class and of its bases. One without a text has the text of the base."""
    found: dict[str, Attribute] = {}
    for base in reversed(cls.__mro__):
        if not issubclass(base, msgspec.Struct) or base is msgspec.Struct:
            continue
        source = textwrap.dedent(inspect.getsource(base))
        body = ast.parse(source).body[0]
        assert isinstance(body, ast.ClassDef)
        for attribute, behind in zip(body.body, [*body.body[1:], None], strict=True):
            if not isinstance(attribute, ast.AnnAssign) or not isinstance(attribute.target, ast.Name):
                continue
            name, text = attribute.target.id, ""
            if isinstance(behind, ast.Expr) and isinstance(behind.value, ast.Constant):
                text = inspect.cleandoc(str(behind.value.value)).partition("\n\n")[0].replace("\n", " ")
            elif name in found:
                text = found[name].text
            type_, default = (
                (each and ast.get_source_segment(source, each)) or ""
                for each in (attribute.annotation, attribute.value)
            )
            found[name] = Attribute(type_, default, text)
    return found


def text_of(cls: type, field: kinds.Field) -> str:
    return attributes(cls)[field.name].text


def own_first(table: kinds.StructType) -> list[kinds.Field]:
    """Return the keys of a table: those of the class alone, then those of its bases."""
    of_bases = {name for base in table.cls.__mro__[1:] for name in getattr(base, "__annotations__", {})}
    return sorted(table.fields, key=lambda field: field.name in of_bases)


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
    for field in own_first(table):
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
        for field in own_first(table):
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


# --- the options of `Gateway.add` ----------------------------------------------------------------------------------


def gateway_source() -> str:
    """Return the source of `Gateway` with the parameters and the docstring that its method `add` has to have."""
    source = GATEWAY.read_text(encoding="utf-8")
    lines = source.splitlines(keepends=True)
    classes = (each for each in ast.parse(source).body if isinstance(each, ast.ClassDef) and each.name == "Gateway")
    add = next(each for each in next(classes).body if isinstance(each, ast.FunctionDef) and each.name == "add")
    options = attributes(UpstreamOptions)
    first, last = add.args.kwonlyargs[0].lineno - 1, add.args.kw_defaults[-1]
    docstring = add.body[0]
    assert last is not None and last.end_lineno is not None and docstring.end_lineno is not None
    first_text = next(number for number in range(last.end_lineno, len(lines)) if lines[number].startswith(_ITEM))
    made = [f"        {name}: {code_type(each.type)} = {each.default},\n" for name, each in options.items()]
    texts = [line for name, each in options.items() for line in _item(name, each.text)]
    before, between = lines[:first], lines[last.end_lineno : first_text]
    return "".join([*before, *made, *between, *texts, *lines[docstring.end_lineno - 1 :]])


def code_type(written: str) -> str:
    """Return the type that an option has in a program."""
    (base,) = UpstreamOptions.__orig_bases__  # type: ignore[attr-defined]
    of_code = {"Secret": "str"}
    for variable, given in zip(UpstreamSettings.__parameters__, get_args(base), strict=True):  # type: ignore[attr-defined]
        of_code[variable.__name__] = (
            given.__forward_arg__ if isinstance(given, ForwardRef) else f"{given.__module__}.{given.__name__}"
        )
    return re.sub(r"\w+", lambda found: of_code.get(found[0], found[0]), written)


def _item(name: str, text: str) -> list[str]:
    lines = textwrap.wrap(f"* `{name}`: {text}", 112, subsequent_indent="  ", break_long_words=False)
    return [f"        {line}\n" for line in lines]


def written() -> dict[Path, str]:
    """Return the content that each of the files has to have."""
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return {
        SCHEMA: json.dumps(schema(), indent=1, ensure_ascii=False) + "\n",
        PAGE: f"{before}{BEGIN}\n{page_tables()}\n{END}{after}",
        GATEWAY: gateway_source(),
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

"""Rules of schemas in words, for the descriptions that models read."""

from __future__ import annotations

from toolwire.schemas.vendor_schemas import show_json
from toolwire.schemas.walking import Json, Schema, mapped, required_names


def say_rule(keyword: str, value: Json) -> str:
    """Say a rule as its keyword and its value."""
    return f"{keyword}: {_cut(show_json(value), 300)}"


def say_choice(keyword: str, parts: list[Schema]) -> str:
    """Say which arguments belong together, where each choice names some."""
    if not any(required_names(part) or part.get("properties") for part in parts[:20]):
        return ""
    sets = [", ".join(required_names(part) or list(dict(mapped(part, ("properties",))))) for part in parts[:20]]
    how = "give exactly one of these sets of arguments" if keyword == "oneOf" else "give one of these sets of arguments"
    return f"{how}: " + _cut("; ".join(f"({each})" for each in sets), 2_000)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def brief(schema: Json) -> str:
    """Name the kind of a value."""
    return str(schema.get("type") or "any value") if isinstance(schema, dict) else "any value"


def text_of(schema: Schema) -> str | None:
    """Return the description of a schema."""
    text = schema.get("description")
    return text if isinstance(text, str) else None


def escape(name: str) -> str:
    """Write a name as a part of a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")

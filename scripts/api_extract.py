"""Write a small extract of a large API description: some operations, and the components that they need.

    python scripts/api_extract.py api.github.com.json examples/github/github.json issues/get pulls/get

Answers other than successes, and examples, are left out. `examples/github` was made with it.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

LEFT_OUT = ("example", "examples", "x-github", "x-octokit", "externalDocs", "links", "callbacks")
DESCRIPTION = 400


def extract(document: dict[str, Any], operations: set[str]) -> dict[str, Any]:
    """Return a description with these operations alone."""
    paths: dict[str, Any] = {}
    found: set[str] = set()
    for path, item in document["paths"].items():
        kept = {
            method: plain(operation)
            for method, operation in item.items()
            if isinstance(operation, dict) and operation.get("operationId") in operations
        }
        if kept:
            paths[path] = {**({"parameters": item["parameters"]} if "parameters" in item else {}), **kept}
            found |= {operation["operationId"] for operation in kept.values()}
    if missing := operations - found:
        raise SystemExit(f"the description has no {', '.join(sorted(missing))}")
    return {
        "openapi": document["openapi"],
        "info": {key: document["info"][key] for key in ("title", "version", "license") if key in document["info"]},
        "servers": document["servers"],
        "paths": paths,
        "components": components(document, paths),
    }


def plain(operation: dict[str, Any]) -> dict[str, Any]:
    """Return an operation with its successes and without examples."""
    good = {status: answer for status, answer in operation["responses"].items() if status.startswith("2")}
    kept: dict[str, Any] = without_examples({**operation, "responses": good})
    return kept


def without_examples(part: Any, is_properties: bool = False) -> Any:
    if isinstance(part, list):
        return [without_examples(each) for each in part]
    if not isinstance(part, dict):
        return part
    return {
        key: value[:DESCRIPTION]
        if key == "description" and isinstance(value, str)
        else without_examples(value, key == "properties")
        for key, value in part.items()
        if is_properties or key not in LEFT_OUT
    }


def components(document: dict[str, Any], paths: dict[str, Any]) -> dict[str, Any]:
    """Return the components that the paths need, and those that these need."""
    found: dict[str, Any] = {}
    waiting: list[Any] = [paths]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting += part
        elif isinstance(part, dict):
            waiting += part.values()
            reference = part.get("$ref")
            if isinstance(reference, str) and reference.startswith("#/components/"):
                _, _, kind, name = reference.split("/", 3)
                if name not in found.setdefault(kind, {}):
                    found[kind][name] = without_examples(document["components"][kind][name])
                    waiting.append(found[kind][name])
    return {kind: dict(sorted(named.items())) for kind, named in sorted(found.items())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("operations", nargs="+")
    arguments = parser.parse_args()
    made = extract(json.loads(arguments.source.read_text()), set(arguments.operations))
    arguments.target.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n")
    print(f"{arguments.target}: {arguments.target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()

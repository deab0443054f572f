"""`_meta` of a tool that has a view, or that is for views alone (SEP-1865)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolwire.protocol.apps import AUDIENCES, FLAT_KEY, Audience, tool_meta
from toolwire.protocol.errors import ServerError
from toolwire.server.components.options import ViewOfTool


def meta_with_view(
    name: str, meta: Mapping[str, Any] | None, app: ViewOfTool | None, visibility: Sequence[Audience] | None
) -> dict[str, Any]:
    """Return the `_meta` of a tool: what the program gives, and the members that connect it with its view."""
    given = dict(meta or {})
    ui = given.get("ui", {})
    if not isinstance(ui, Mapping):
        raise ServerError(f"The tool {name!r} has a _meta.ui that is no object")
    for member in ("csp", "permissions"):
        if member in ui:
            # Hosts look for them at the view, and nowhere else.
            raise ServerError(
                f"The tool {name!r} has {member!r} in _meta.ui, where no host looks for it: give it to server.app()"
            )
    if app is not None:
        for key in ("resourceUri", FLAT_KEY):
            if key in ui or key in given:
                raise ServerError(f"The tool {name!r} has app= and {key!r} in its meta=: take one of the two")
        made = tool_meta(name, app.uri, _checked(name, visibility), openai=app.is_openai)
        return {**given, **made, "ui": {**ui, **made["ui"]}}
    if visibility is not None:
        return {**given, "ui": {**ui, "visibility": _checked(name, visibility)}}
    if "visibility" in ui:
        _checked(name, ui["visibility"])
    return given


def _checked(name: str, visibility: Any) -> list[Audience]:
    if visibility is None:
        return list(AUDIENCES)
    named = [visibility] if isinstance(visibility, str) else list(visibility)
    if not named or any(each not in AUDIENCES for each in named):
        raise ServerError(f"The visibility of the tool {name!r} is 'model', 'app', or both, not {visibility!r}")
    return [each for each in AUDIENCES if each in named]

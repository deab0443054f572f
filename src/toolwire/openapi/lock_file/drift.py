"""Differences between a locked API and its current description, by severity."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from toolwire.hostile_text import hostile_texts
from toolwire.openapi.lock_file.lock import Lock, LockedOperation, LockedPlaces, LockedServer
from toolwire.openapi.lock_file.schema_changes import changed_places, changed_texts, compare_schemas
from toolwire.protocol.tool_changes import is_same_json

#: `alarm`: requests or credentials would go to another place, or a text may deceive a model. `breaking`: calls that
#: work today would fail. `review`: a person should read it, because a model will. `info`: nothing that is served is
#: concerned.
Severity: TypeAlias = Literal["info", "review", "breaking", "alarm"]
SEVERITIES: Final[tuple[Severity, ...]] = ("info", "review", "breaking", "alarm")

Kind: TypeAlias = Literal[
    "added",
    "removed",
    "renamed",
    "moved",
    "input narrowed",
    "input widened",
    "request changed",
    "output changed",
    "description changed",
    "hostile text",
    "annotations changed",
    "tags changed",
    "server changed",
    "security changed",
    "title changed",
    "version changed",
]
_SEVERITY: Final[dict[Kind, Severity]] = {
    "added": "info",
    "removed": "breaking",
    "renamed": "review",
    "moved": "breaking",
    "input narrowed": "breaking",
    "input widened": "info",
    "request changed": "breaking",
    "output changed": "review",
    "description changed": "review",
    "hostile text": "alarm",
    "annotations changed": "review",
    "tags changed": "review",
    "server changed": "alarm",
    "security changed": "alarm",
    "title changed": "review",
    "version changed": "info",
}
#: The detail of a schema of answers that differs although the description has the same one.
OWN_FORM: Final = (
    "only the form in which this version of Toolwire writes the schema; the API describes the same answers"
)
_SHOWN_PLACES: Final = 5
_SHOWN_PLACE: Final = 200
# A path starts with one slash. `//host`, `@host` and `http://host` name another server, and some read `\` as `/`.
_LIKE_A_HOST: Final = re.compile(r"(?!/)|//|[^?#]*(?:\\|://)")


class ApiChange(Struct, frozen=True):
    """One difference."""

    severity: Severity
    kind: Kind
    operation: str
    """The label of the operation; empty for the API as a whole."""
    detail: str = ""


def compare_locks(before: Lock, after: Lock) -> list[ApiChange]:
    """Return the differences between two locks of the same choice, worst first.

    `after` is made of the documents of today. It has every operation of today among `operations` and `others`.
    """
    found = [*_about(before, after), *_schemes(before, after), *_operations(before, after)]
    return sorted(found, key=lambda each: (-SEVERITIES.index(each.severity), each.operation, each.kind))


def has_same_documents(before: Lock, after: Lock) -> bool:
    """Return whether two locks have the same documents, so that only Toolwire differs."""
    return {name: each.digest for name, each in before.documents.items()} == {
        name: each.digest for name, each in after.documents.items()
    }


def worst(changes: Iterable[ApiChange]) -> Severity | None:
    """Return the highest severity; None where nothing changed."""
    return max((each.severity for each in changes), key=SEVERITIES.index, default=None)


def _change(kind: Kind, operation: str, detail: str = "") -> ApiChange:
    return ApiChange(_SEVERITY[kind], kind, operation, detail)


def _operations(before: Lock, after: Lock) -> Iterator[ApiChange]:
    places = {*after.others, *(each.place for each in after.operations)}
    locked = LockedPlaces(before, places)
    is_unchanged = has_same_documents(before, after)
    now = {old.place: new for new in after.operations if (old := locked.find(new.place, new.operation)) is not None}
    for old in before.operations:
        new = now.get(old.place)
        if new is None:
            yield _change("removed", old.label, _why_gone(old, places))
        else:
            yield from compare_operations(old, new, is_unchanged=is_unchanged)
    known = {*before.others, *(each.place for each in before.operations), *(each.place for each in now.values())}
    for place in sorted(places - known):
        yield _moved("added", place, place.partition(" ")[2], "")


def _why_gone(old: LockedOperation, places: set[str]) -> str:
    return "it no longer becomes a tool" if old.place in places else "the description has it no longer"


def _about(before: Lock, after: Lock) -> Iterator[ApiChange]:
    """Yield the differences between the texts about the API as a whole.

    They name its server and its bridge.
    """
    if before.title != after.title:
        yield _change("title changed", "", f"from {before.title!r} to {after.title!r}")
    if before.version != after.version:
        yield _change("version changed", "", f"from {before.version!r} to {after.version!r}")
    texts = [{"title": each.title, "version": each.version} for each in (before, after)]
    if signs := _new_signs_of_deceit(*texts):
        yield _change("hostile text", "", _places(signs))


def _schemes(before: Lock, after: Lock) -> Iterator[ApiChange]:
    for name in sorted(before.security_schemes.keys() | after.security_schemes.keys()):
        if not is_same_json(before.security_schemes.get(name), after.security_schemes.get(name)):
            yield _change("security changed", "", f"the security scheme {name!r}")


def compare_operations(
    before: LockedOperation, after: LockedOperation, *, is_unchanged: bool = False
) -> Iterator[ApiChange]:
    """Yield the differences between an operation as it was locked and as it is now.

    `is_unchanged`: the documents have the digests that were locked.
    """
    label = before.label
    if before.place != after.place:
        yield _moved("moved", label, after.path, f"from {before.place} to {after.place}")
    elif before.operation != after.operation:
        yield _change("renamed", label, f"the operationId is {after.operation!r} now; the tool keeps its name")
    if not are_same_servers(before, after, is_unchanged=is_unchanged):
        yield _change("server changed", label, f"from {_list(before.servers)} to {_list(after.servers)}")
    if before.security != after.security:
        yield _change("security changed", label, f"from {_schemes_of(before)} to {_schemes_of(after)}")
    inputs = compare_schemas(before.input_schema, after.input_schema)
    if inputs.narrowed:
        yield _change("input narrowed", label, _places(inputs.narrowed))
    if inputs.widened:
        yield _change("input widened", label, _places(inputs.widened))
    if sent := _sent_differently(before, after):
        yield _change("request changed", label, sent)
    if before.answers != after.answers:
        yield _change("output changed", label)
    elif not is_same_json(before.output_schema, after.output_schema):
        # Older lock files do not have the digest of what the API describes.
        is_own = before.answers is not None or is_unchanged
        yield _change("output changed", label, OWN_FORM if is_own else "")
    texts = _texts(before, after)
    if not inputs.narrowed and not inputs.widened and not texts:
        # Keywords that neither decide about a value nor are read as a text. Clients get them all the same.
        texts = list(changed_places(before.input_schema, after.input_schema))
    if texts:
        yield _change("description changed", label, _places(texts))
    if before != after and (signs := _new_signs_of_deceit(_shown_to_models(before), _shown_to_models(after))):
        yield _change("hostile text", label, _places(signs))
    if before.annotations != after.annotations:
        changed = _changed_annotations(before, after)
        yield _change("annotations changed", label, ", ".join(changed))
    # Older lock files do not have the tags.
    if before.tags is not None and before.tags != after.tags:
        yield _change("tags changed", label, f"from {_tags_of(before)} to {_tags_of(after)}")


def _sent_differently(before: LockedOperation, after: LockedOperation) -> str:
    """Name the arguments that go to another place of the request, or in another form."""
    if before.media_type != after.media_type:
        return f"the body is {after.media_type} and was {before.media_type}"
    both = before.arguments.keys() & after.arguments.keys()
    moved = sorted(name for name in both if before.arguments[name] != after.arguments[name])
    if moved:
        return ", ".join(
            f"{name}: {before.arguments[name]} -> {after.arguments[name]}" for name in moved[:_SHOWN_PLACES]
        )
    if before.tags is None:  # Older lock files do not have the forms.
        return ""
    places = before.forms.keys() | after.forms.keys()
    return _places([each for each in sorted(places) if not is_same_json(before.forms.get(each), after.forms.get(each))])


def _texts(before: LockedOperation, after: LockedOperation) -> list[str]:
    own = [name for name in ("title", "description") if getattr(before, name) != getattr(after, name)]
    return own + changed_texts(before.input_schema, after.input_schema)


def _new_signs_of_deceit(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return signs of deceit in texts for models that are new since the lock."""
    known: dict[str, list[str]] = {}
    accepted = {finding for _, finding in hostile_texts(before, known)}
    found = hostile_texts(after, known)
    return [
        f"/{'/'.join(map(str, place))[:_SHOWN_PLACE]}: {finding}" for place, finding in found if finding not in accepted
    ]


def _shown_to_models(operation: LockedOperation) -> dict[str, Any]:
    names = ("tool", "title", "description", "annotations", "input_schema", "output_schema")
    return {name: getattr(operation, name) for name in names}


def _changed_annotations(before: LockedOperation, after: LockedOperation) -> list[str]:
    old, new = before.annotations.to_dict(), after.annotations.to_dict()
    return sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))


def _places(places: list[str]) -> str:
    more = len(places) - _SHOWN_PLACES
    return ", ".join(places[:_SHOWN_PLACES]) + (f" and {more} more" if more > 0 else "")


def _list(servers: tuple[str | LockedServer, ...]) -> str:
    return ", ".join(map(str, servers)) or "none"


def are_same_servers(before: LockedOperation, after: LockedOperation, *, is_unchanged: bool) -> bool:
    """Return whether requests go where they went.

    Older lock files do not say the variables of servers. Then only unchanged documents prove that they are the same.
    """
    if before.servers == after.servers or not is_unchanged:
        return before.servers == after.servers
    urls = tuple(each.url if isinstance(each, LockedServer) else each for each in after.servers)
    return before.servers == urls


def _moved(kind: Kind, operation: str, path: str, detail: str) -> ApiChange:
    """Return a change of a path: an alarm if it reads like a host."""
    if _LIKE_A_HOST.match(path) is None:
        return _change(kind, operation, detail)
    reason = "the path reads like the address of another host"
    return ApiChange("alarm", kind, operation, f"{detail}: {reason}" if detail else reason)


def _tags_of(operation: LockedOperation) -> str:
    return ", ".join(map(repr, operation.tags or ())) or "none"


def _schemes_of(operation: LockedOperation) -> str:
    return " or ".join(_together(each) for each in operation.security) or "nothing"


def _together(needed: dict[str, tuple[str, ...]]) -> str:
    texts = (f"{name} {list(scopes)}" if scopes else name for name, scopes in needed.items())
    return " and ".join(texts) or "nothing"

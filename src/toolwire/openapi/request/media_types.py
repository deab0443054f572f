"""Media types of bodies: their kinds, and which of several is used."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

from toolwire.openapi.model import MediaTypeObject

#: The ways in which a body is written.
BodyKind: TypeAlias = Literal["json", "form", "multipart", "binary", "text", "other"]

# Where an API takes several forms of a body, the first of these is used. `other` takes a decision of a person.
_ORDER: Final[tuple[BodyKind, ...]] = ("json", "form", "multipart", "binary", "text")
_ANYTHING: Final = ("*/*", "application/*")
_BYTES: Final = frozenset(
    ("application/octet-stream", "application/pdf", "application/zip", "application/gzip", "application/x-gzip",
     "application/x-tar", "application/x-zip-compressed")
)  # fmt: skip
_KINDS_OF_BYTES: Final = ("image/", "audio/", "video/", "font/")
#: Forms that are a sequence of items (3.2, Media Type Object, itemSchema).
STREAMS: Final = frozenset(
    (
        "text/event-stream", "application/jsonl", "application/jsonlines", "application/json-lines",
        "application/x-jsonlines", "application/ndjson", "application/x-ndjson", "application/stream+json",
        "application/json-seq", "application/geo+json-seq",
    )
)  # fmt: skip


def essence(media_type: str) -> str:
    """Return a media type in lower case, without its parameters."""
    return media_type.partition(";")[0].strip().lower()


def is_json(media_type: str) -> bool:
    name = essence(media_type)
    return name in ("application/json", "text/json", *_ANYTHING) or (name.endswith("+json") and not is_stream(name))


def is_stream(media_type: str) -> bool:
    """Return whether a body of this type is a sequence of items."""
    name = essence(media_type)
    return name in STREAMS or name.endswith("+json-seq")


def body_kind(media_type: str) -> BodyKind:
    """Return how a body of this type is written."""
    name = essence(media_type)
    if is_json(name):
        return "json"
    if name == "application/x-www-form-urlencoded":
        return "form"
    if name.startswith("multipart/"):
        return "multipart"
    if name in _BYTES or name.startswith(_KINDS_OF_BYTES):
        return "binary"
    # A model can write CSV, but it cannot know which XML an API wants.
    return "text" if name.startswith("text/") and name != "text/xml" else "other"


def preferred(content: Iterable[MediaTypeObject]) -> MediaTypeObject | None:
    """Choose the form of a request body; None where a person has to choose."""
    # A text with other characters cannot be sent as a media type.
    forms = [form for form in content if form.media_type.isascii() and form.media_type.isprintable()]
    # Exact names come before `+json`, `*/*` and other kinds of multipart.
    forms.sort(key=lambda form: essence(form.media_type) not in ("application/json", "multipart/form-data"))
    for kind in _ORDER:
        for form in forms:
            if body_kind(form.media_type) == kind:
                return form
    return None


def chosen(content: Iterable[MediaTypeObject], media_type: str) -> MediaTypeObject | None:
    """Return the form that a person chose; None where the API does not take it."""
    forms = list(content)
    exact = (form for form in forms if form.media_type == media_type)
    same = (form for form in forms if essence(form.media_type) == essence(media_type))
    return next(exact, None) or next(same, None)

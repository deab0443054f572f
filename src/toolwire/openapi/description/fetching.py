"""Load documents: files below one folder, permitted URLs, and given objects.

A description comes from a stranger, so it must not make us read other files of the machine or other hosts of the
network: files have to be below the folder of the root, and URLs need the permission of the operator.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import unquote, urlsplit

import msgspec

from toolwire.base_errors import Timeout, TransportError
from toolwire.http1.fetch import fetch
from toolwire.http1.pool import MAX_REDIRECTS
from toolwire.http1.public_addresses import is_public
from toolwire.http1.response import HttpResponse, TooLarge
from toolwire.http1.url import origin
from toolwire.loops import finish
from toolwire.openapi.description.documents import Limits, survey, too_large
from toolwire.openapi.model import DescriptionError

Reach: TypeAlias = str | Collection[str] | None
"""The origins from which documents are fetched. `"public"`: any public address by https. None: no address."""

#: A file, a URL, the text of a document, or its content.
Given: TypeAlias = str | os.PathLike[str] | bytes | Mapping[str, Any]

#: The name of a description that was handed over as an object, in error texts.
OBJECT_NAME: Final = "description"
_NO_WAITING: Final[int] = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_ACCEPT: Final = "application/openapi+json, application/openapi+yaml, application/json, application/yaml, */*;q=0.5"


class DocumentSource(NamedTuple):
    """The text of a document, and where it comes from."""

    data: bytes
    uri: str
    """Its address; an empty string for an object without one."""
    name: str
    """How error texts name it."""
    file: Path | None = None


class Sources:
    """The way to the texts of one description. It counts documents and bytes."""

    def __init__(
        self,
        limits: Limits,
        reach: Reach,
        copies: Mapping[str, bytes],
        on_document: Callable[[str, bytes], None] | None,
    ) -> None:
        self._limits = limits
        self._is_public_allowed = reach == "public"
        self._origins = _origins(reach)
        self._copies = copies
        self._on_document = on_document
        self._folder: Path | None = None
        """The folder of the root. Files outside of it are not read."""
        self._documents = 0
        self._bytes = 0

    def named(self, source: Given, base_uri: str | None = None, name: str = OBJECT_NAME) -> DocumentSource:
        """Return a document that the operator named or gave.

        `name` is that of an object without an address.
        """
        name = base_uri or name
        if isinstance(source, bytes):
            return self._counted(DocumentSource(source, base_uri or "", name))
        if isinstance(source, Mapping):
            return self._counted(DocumentSource(_encoded(source, name, self._limits), base_uri or "", name))
        if isinstance(source, str) and source.startswith(("http://", "https://")):
            return self._counted(DocumentSource(self._copies.get(source) or self._fetched(source), source, source))
        path = Path(_path_of_uri(source) if isinstance(source, str) and source.startswith("file://") else source)
        file = _resolved(path)
        if self._folder is None:
            self._folder = file.parent
        return self._counted(self._file(file, str(path), file.as_uri()))

    def referred(self, uri: str) -> DocumentSource:
        """Return a document that another document names; raise `DescriptionError` where that is not permitted."""
        scheme = urlsplit(uri).scheme
        if (copy := self._copies.get(uri)) is not None:
            return self._counted(DocumentSource(copy, uri, uri))
        if scheme == "file":
            file = _resolved(Path(_path_of_uri(uri)))
            if self._folder is None or not file.is_relative_to(self._folder):
                raise DescriptionError(
                    f"{uri}: this file is not below the folder of the description: move it there, "
                    "or put all parts into one file"
                )
            return self._counted(self._file(file, os.path.relpath(file), uri))
        if scheme in ("http", "https"):
            return self._counted(DocumentSource(self._fetched_if_permitted(uri), uri, uri))
        raise DescriptionError(
            f"{uri[:200]}: a reference to another document needs the address of this one: "
            "read the description from a file or a URL, or give base_uri="
        )

    def _counted(self, source: DocumentSource) -> DocumentSource:
        self._documents += 1
        self._bytes += len(source.data)
        if len(source.data) > self._limits.bytes:
            raise too_large(source.name, self._limits)
        if self._documents > self._limits.documents or self._bytes > self._limits.total_bytes:
            raise TooManyDocuments(
                f"{source.name}: the description has more than {self._limits.documents} documents or "
                f"{self._limits.total_bytes:,} bytes: take the parts that you need, or raise Limits"
            )
        if self._on_document is not None:
            self._on_document(source.uri, source.data)
        return source

    # --- files ---

    def _file(self, file: Path, name: str, uri: str) -> DocumentSource:
        if (copy := self._copies.get(uri)) is not None:
            return DocumentSource(copy, uri, name)
        try:
            # Without O_NONBLOCK a named pipe would wait for a writer.
            with os.fdopen(os.open(file, os.O_RDONLY | _NO_WAITING), "rb") as opened:
                if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                    raise DescriptionError(f"{name}: this is not a file: name the file of the description")
                return DocumentSource(opened.read(self._limits.bytes + 1), uri, name, file)
        except OSError as error:
            raise DescriptionError(
                f"{name}: the file cannot be read ({error.strerror}): check its name and its permissions"
            ) from None

    # --- URLs ---

    def _fetched_if_permitted(self, uri: str) -> bytes:
        if origin(uri) in self._origins:
            return self._fetched(uri)
        if self._is_public_allowed and uri.startswith("https://"):
            return self._fetched(uri, from_outside=True)
        raise DescriptionError(
            f'{uri[:200]}: documents of {origin(uri)} are not fetched: permit it with reach=["{origin(uri)}"]'
        )

    def _fetched(self, uri: str, *, from_outside: bool = False) -> bytes:
        try:
            response, body = finish(self._fetch(uri, from_outside))
        except Timeout:
            seconds = f"{self._limits.seconds:g} s"
            raise DescriptionError(
                f"{uri}: it was not there in {seconds}: try again, or raise Limits.seconds"
            ) from None
        except TooLarge:
            raise too_large(uri, self._limits) from None
        except TransportError as error:
            raise DescriptionError(f"{uri}: the document cannot be fetched ({error}): check the address") from None
        if response.status != 200:
            raise DescriptionError(_refusal(uri, response.status, response.header("location")))
        return body

    async def _fetch(self, uri: str, from_outside: bool) -> tuple[HttpResponse, bytes]:
        return await fetch(
            "GET",
            uri,
            headers={"accept": _ACCEPT},
            max_bytes=self._limits.bytes,
            seconds=self._limits.seconds,
            redirects=MAX_REDIRECTS,
            # An address that a description named is judged when its name is resolved, so DNS cannot move it inwards.
            vet=is_public if from_outside else None,
            wants_body=lambda response: response.status == 200,
        )


class TooManyDocuments(DescriptionError):
    """The documents of a description are too many or too large together."""


def _refusal(uri: str, status: int, location: str | None) -> str:
    if 300 <= status < 400 and location is not None:
        return f"{uri}: the server redirects to {location[:200]}: name that address"
    return f"{uri}: the server answers {status}: check the address, and save the file if it needs a sign-in"


def _origins(reach: Reach) -> frozenset[str]:
    if reach is None or reach == "public":
        return frozenset()
    named = [reach] if isinstance(reach, str) else list(reach)
    for each in named:
        if not each.startswith(("http://", "https://")):
            raise DescriptionError(f'reach={each!r} is not an origin: write "https://example.com", or "public"')
    return frozenset(origin(each) for each in named)


def _encoded(content: Mapping[str, Any], name: str, limits: Limits) -> bytes:
    survey(content, name, limits)  # Before it is written: an object may contain itself.
    try:
        return msgspec.json.encode(content)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise DescriptionError(f"{name}: the object is not JSON ({error}): give a dict as JSON has it") from None


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except ValueError:
        raise DescriptionError(f"{str(path)[:200]!r} is the name of no file: remove its control characters") from None


def _path_of_uri(uri: str) -> str:
    from urllib.request import url2pathname

    parts = urlsplit(uri)
    if parts.netloc not in ("", "localhost"):
        raise DescriptionError(f"{uri[:200]}: a file on another host cannot be read: name a file of this machine")
    return url2pathname(parts.path) if os.name == "nt" else unquote(parts.path)

"""`read_description`: read an API description with every document that it refers to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import urldefrag, urljoin

from toolwire.openapi.description.documents import Document, Limits, parse, survey, version_of
from toolwire.openapi.description.fetching import DocumentSource, Given, Reach, Sources, TooManyDocuments
from toolwire.openapi.description.overlays import Overlay, Overlays
from toolwire.openapi.description.references import Description, embedded
from toolwire.openapi.description.swagger2 import convert
from toolwire.openapi.model import DescriptionError, Version, digest_of


def read_description(
    source: Given,
    *,
    overlays: Iterable[Given] = (),
    base_uri: str | None = None,
    reach: Reach = None,
    limits: Limits = Limits(),
    copies: Mapping[str, bytes] | None = None,
    on_document: Callable[[str, bytes], None] | None = None,
) -> Description:
    """Read an API description and all documents that it refers to; raise `DescriptionError`.

    * `source`: a file, a URL, the text of a document (bytes), or its content.
    * `overlays`: overlays (Overlay Specification 1.x), which are applied in this order before the description is read.
      `Description.warnings` names their actions that changed nothing.
    * `base_uri`: the address of a description that is handed over as bytes or content.
    * `reach`: the origins (`https://schemas.example.com`) from which other documents may be fetched, or `"public"` for
      https at any public address. A URL in `source` needs no permission. Files are read below the folder of the root.
    * `copies`: texts by address, which are used instead of the file or the URL.
    * `on_document`: called with the address and the text of every document that is read.
    """
    sources = Sources(limits, reach, copies or {}, on_document)
    # The root comes first: its folder is the one that files are read from.
    root = sources.named(source, base_uri)
    read = Overlays(Overlay(sources.named(each, name="overlay"), limits) for each in overlays)
    return _Reader(sources, limits, read).read(root)


class _Reader:
    """A reader of one description. It follows references until no new document is named."""

    def __init__(self, sources: Sources, limits: Limits, overlays: Overlays) -> None:
        self._sources = sources
        self._limits = limits
        self._overlays = overlays
        self._documents: dict[str, Document] = {}
        self._failures: dict[str, DescriptionError] = {}
        self._values: dict[str, tuple[DocumentSource, Any]] = {}
        """Other documents as they were written, by address."""
        self._waiting: dict[str, Version | None] = {}
        """The addresses to read, with the version of the document that names them first; None for Swagger 2.0."""

    def read(self, source: DocumentSource) -> Description:
        root = self._root(source)
        while self._waiting:
            uri, version = next(iter(self._waiting.items()))
            del self._waiting[uri]
            self._read_other(uri, version)
        return Description(root, self._documents, self._failures, self._overlays.digests, self._overlays.warnings)

    def _root(self, source: DocumentSource) -> Document:
        value = self._overlays.on_root(parse(source.data, source.name, self._limits), source, self._limits)
        return self._add(value, version_of(value, source.name), source)

    def _read_other(self, uri: str, version: Version | None) -> None:
        if uri in self._documents:
            return
        try:
            value = self._value(uri)
            source = self._values[uri][0]
            if isinstance(value, dict) and ("openapi" in value or "swagger" in value):
                version = version_of(value, source.name)
            self._add(value, version, source)
        except TooManyDocuments:
            raise
        except DescriptionError as error:
            # Raised when the reference is needed: it may stand in an example.
            self._failures[uri] = error

    def _value(self, uri: str) -> Any:
        """Return the content of another document, as it was written."""
        found = self._values.get(uri)
        if found is None:
            source = self._sources.referred(uri)
            value = self._overlays.on_other(parse(source.data, source.name, self._limits), uri)
            found = self._values[uri] = (source, value)
            survey(found[1], source.name, self._limits)  # Before parts of it are taken.
        return found[1]

    def _add(self, value: Any, version: Version | None, source: DocumentSource) -> Document:
        """Add a document. A version of None stands for Swagger 2.0."""
        external, has_ids = survey(value, source.name, self._limits)
        if version is None:
            value, external = convert(value, source.uri, self._value)
        own = value.get("$self") if version == "3.2" and isinstance(value, dict) else None
        document = Document(
            value,
            version or "3.0",
            uri=urldefrag(urljoin(source.uri, own)).url if isinstance(own, str) else source.uri,
            retrieved_from=source.uri,
            name=source.name,
            digest=digest_of(source.data),
            file=source.file,
            has_ids=has_ids,
            is_converted=version is None,
        )
        # 3.2, 4.1.2.2: other documents may use the canonical address as well as the one it was read from.
        self._documents[source.uri] = self._documents[document.uri] = document
        for uri in self._named_by(document, external):
            if uri not in self._documents and uri not in self._failures:
                self._waiting.setdefault(uri, version)
        return document

    def _named_by(self, document: Document, references: Iterable[str]) -> Iterable[str]:
        if not document.has_ids or document.version == "3.0":
            return {urldefrag(urljoin(document.uri, each)).url for each in references}
        parts = [document, *embedded(document)]
        named = {urldefrag(urljoin(part.uri, each)).url for part in parts for each in _references_of(part)}
        return named - {part.uri for part in parts}


def _references_of(document: Document) -> Iterable[str]:
    """Return the references to other documents.

    Those in schemas that have an `$id` of their own are left out.
    """
    waiting: list[Any] = [document.root]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if isinstance(value.get("$id"), str) and value is not document.root:
                continue
            if isinstance(reference := value.get("$ref"), str) and reference[:1] not in ("", "#"):
                yield reference
        waiting += [
            each for each in (value.values() if isinstance(value, dict) else value) if isinstance(each, dict | list)
        ]

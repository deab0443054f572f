"""References of an API description: `$ref`, `$id` and `$anchor`, across documents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from toolwire.openapi.description.documents import Document
from toolwire.openapi.model import ApiDocument, DescriptionError, Node
from toolwire.util.json_pointer import MISSING, at_pointer, escape_token, unescape_token


class Description:
    """An API description: its root document and all documents that it refers to."""

    def __init__(
        self,
        root: Document,
        documents: Mapping[str, Document],
        failures: Mapping[str, DescriptionError],
        overlays: Mapping[str, str] | None = None,
        warnings: Iterable[str] = (),
    ) -> None:
        """`overlays` are the digests of overlays, by address."""
        self.root: Document = root
        self.documents: Mapping[str, Document] = documents
        """All documents that were read, by canonical address; one with `$self` also by the address it was read from."""
        self._failures = failures
        self.warnings: tuple[str, ...] = tuple(warnings)
        """Parts of overlays that changed nothing or look wrong, in plain words with their places."""
        self._digests = {each.retrieved_from: each.digest for each in documents.values()} | dict(overlays or {})
        self._found: dict[tuple[str, str], tuple[str, Node]] = {}
        self._resources: dict[str, Document] | None = None

    @property
    def title(self) -> str:
        """Return the title of the API; an empty string where it has none."""
        return self._info("title")

    @property
    def version(self) -> str:
        """Return the version of the API; an empty string where it has none."""
        return self._info("version")

    @property
    def digests(self) -> Mapping[str, str]:
        """Return the digests of everything that was read, by its address.

        Overlays are included.
        """
        return self._digests

    def _info(self, member: str) -> str:
        info = self.root.root.get("info")
        value = info.get(member) if isinstance(info, dict) else None
        return value if isinstance(value, str) else str(value) if isinstance(value, int | float) else ""

    def resolve(self, node: Node) -> Node:
        """Follow a Reference Object, or a chain of them; return any other node unchanged."""
        value = node.value
        if type(value) is not dict or type(value.get("$ref")) is not str:
            return node
        seen: set[str] = set()
        texts: dict[str, str] = {}
        while isinstance(value, dict) and isinstance(reference := value.get("$ref"), str):
            if node.document.version != "3.0":
                # 3.1, Reference Object: summary and description beside `$ref` replace those of its target.
                texts = {key: value[key] for key in ("summary", "description") if key in value} | texts
            name, target = self.referenced(reference, node.document)
            if name in seen:
                raise _error(
                    _own(node.document), reference, "leads back to itself", "let one of them be the object itself"
                )
            seen.add(name)
            node, value = target, target.value
        return node if not texts or not isinstance(value, dict) else node._replace(value={**value, **texts})

    def referenced(self, reference: str, document: ApiDocument) -> tuple[str, Node]:
        """Return the canonical name (`uri#/pointer`) and the target of a `$ref`."""
        found = self._found.get((document.uri, reference))
        if found is None:
            found = self._found[document.uri, reference] = self._find(reference, _own(document))
        return found

    def scope(self, node: Node) -> ApiDocument:
        """Return the document that is the base of references below a schema.

        A schema with an `$id` of its own begins a new one.
        """
        value = node.value
        identifier = value.get("$id") if isinstance(value, dict) else None
        if not isinstance(identifier, str) or node.document.version == "3.0" or value is node.document.root:
            return node.document
        uri = urldefrag(urljoin(node.document.uri, identifier)).url
        return self._all_resources().get(uri, _own(node.document))

    def _find(self, reference: str, document: Document) -> tuple[str, Node]:
        uri, _, fragment = reference.partition("#")
        target = document if uri == "" else self._document(uri, reference, document)
        pointer = unquote(fragment)
        value = at_pointer(target.root, pointer) if pointer[:1] in ("", "/") else MISSING
        if value is MISSING and pointer[:1] not in ("", "/"):
            anchored = _anchored(target, pointer)
            if anchored is not None:
                pointer, value = anchored
        if value is MISSING and uri == "" and target.above is not None:
            # Many schemas with an `$id` still refer to `#/components`, as if they had none.
            return self._find(reference, target.above)
        if value is MISSING:
            raise _error(document, reference, "leads to nothing", _advice(target, pointer))
        return f"{target.uri}#{pointer}", Node(value, target, pointer)

    def _document(self, uri: str, reference: str, document: Document) -> Document:
        absolute = urljoin(document.uri, uri)
        found = self.documents.get(absolute) or self._all_resources().get(absolute)
        if found is not None:
            return found
        failure = self._failures.get(absolute)
        if failure is not None:
            place = document.place_of_text(reference)
            raise DescriptionError(f"{place}: $ref {reference[:200]!r} cannot be read: {failure}")
        raise _error(document, reference, "names a document that was not read", "name it by $ref")

    def _all_resources(self) -> dict[str, Document]:
        """Return the schemas with an `$id`, as documents of their own."""
        if self._resources is None:
            self._resources = {}
            for document in dict.fromkeys(self.documents.values()):
                if document.has_ids and document.version != "3.0":
                    for resource in embedded(document):
                        self._resources.setdefault(resource.uri, resource)
        return self._resources


def _own(document: ApiDocument) -> Document:
    if not isinstance(document, Document):
        raise TypeError("the document of a node comes from the same description")
    return document


def embedded(document: Document) -> Iterator[Document]:
    """Yield the schemas with an `$id` in a document, outer ones first."""
    waiting: list[tuple[Any, Document, str]] = [(document.root, document, "")]
    while waiting:
        value, base, pointer = waiting.pop()
        if isinstance(value, dict):
            identifier = value.get("$id")
            if isinstance(identifier, str) and value is not base.root:
                base, pointer = base.part(value, urldefrag(urljoin(base.uri, identifier)).url, pointer), ""
                yield base
            waiting += [
                (member, base, f"{pointer}/{escape_token(key)}")
                for key, member in value.items()
                if isinstance(member, dict | list)
            ]
        else:
            waiting += [
                (item, base, f"{pointer}/{at}") for at, item in enumerate(value) if isinstance(item, dict | list)
            ]


def _anchored(document: Document, name: str) -> tuple[str, Any] | None:
    """Return pointer and value of the schema with an `$anchor` or `$dynamicAnchor`."""
    waiting: list[tuple[Any, str]] = [(document.root, "")]
    while waiting:
        value, pointer = waiting.pop()
        if isinstance(value, dict):
            if name in (value.get("$anchor"), value.get("$dynamicAnchor")):
                return pointer, value
            if isinstance(value.get("$id"), str) and value is not document.root:
                continue  # Its anchors are its own.
            members: Iterator[tuple[Any, Any]] = iter(value.items())
        else:
            members = iter(enumerate(value))
        waiting += [
            (each, f"{pointer}/{escape_token(str(key))}") for key, each in members if isinstance(each, dict | list)
        ]
    return None


# --- errors ---


def _error(document: Document, reference: str, problem: str, remedy: str) -> DescriptionError:
    return DescriptionError(f"{document.place_of_text(reference)}: $ref {reference[:200]!r} {problem}: {remedy}")


def _advice(document: Document, pointer: str) -> str:
    """Name the target that was probably meant."""
    if pointer[:1] != "/":
        return f"no schema in {document.name} has this $anchor"
    above, _, last = pointer.rpartition("/")
    around = at_pointer(document.root, above)
    names = [str(name) for name in around] if isinstance(around, dict) else []
    near = get_close_matches(unescape_token(last), names[:5000], n=1)
    if near:
        return f"did you mean #{above}/{escape_token(near[0])}?"
    return f"add it to {document.name}, or correct the reference"

"""`ToolIndex`: tools ranked by BM25 over their names, texts, arguments and servers.

A description is untrusted: the counted words of each field are bounded, and a long field counts less per word.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from heapq import nsmallest
from itertools import islice
from math import log
from typing import Any, Final

from msgspec import Struct, UnsetType

from toolwire.protocol.types.tools import Tool
from toolwire.search.words import split_words, terms
from toolwire.tokens import definition_tokens
from toolwire.util.expiring import Expiring

#: How many characters and words of a query count.
MAX_QUERY: Final = 1_000
MAX_QUERY_WORDS: Final = 50
#: Prefix of a query that names tools instead of describing them: `select:create_issue,merge`.
SELECT: Final = "select:"
_K1: Final = 1.2
_B: Final = 0.75
#: The member of `_meta` with which hosts and servers say by what else a tool is found.
SEARCH_HINT: Final = "anthropic/searchHint"
#: What a word counts in each field, and how many words of the field are counted.
_FIELDS: Final = (("name", 3.0, 40), ("text", 1.0, 200), ("arguments", 0.3, 200), ("server", 1.0, 20))


class IndexedTool(Struct, frozen=True, kw_only=True):
    """The searchable parts of a tool."""

    name: str
    title: str = ""
    description: str = ""
    input_schema: Mapping[str, Any] = {}
    keywords: Sequence[str] = ()
    server: str = ""

    @classmethod
    def from_definition(cls, tool: Tool, server: str = "") -> IndexedTool:
        """Read the definition of a listed tool, with the keywords of its `anthropic/searchHint`."""
        title, description = ("" if isinstance(text, UnsetType) else text for text in (tool.title, tool.description))
        hint = None if isinstance(tool.meta, UnsetType) else tool.meta.get(SEARCH_HINT)
        keywords = hint if isinstance(hint, list) else [hint]
        return cls(
            name=tool.name,
            title=title,
            description=description,
            input_schema=tool.input_schema,
            keywords=tuple(each for each in keywords if isinstance(each, str)),
            server=server,
        )

    def field(self, name: str) -> str:
        """Return the text of a field of the index."""
        if name == "text":
            return " ".join((self.title, *self.keywords, self.description))
        if name == "arguments":
            return _argument_text(self.input_schema)
        return self.name if name == "name" else self.server


class ToolHit(Struct, frozen=True):
    """A tool that a search found, with the words of the query that it matched."""

    name: str
    server: str
    #: Comparable within one search only; exact names and prefixes come first whatever their score is.
    score: float
    words: tuple[str, ...]
    #: Estimated size of the definition in a model's context.
    tokens: int


class ToolIndex:
    """An immutable index of tools."""

    def __init__(self, tools: Iterable[IndexedTool]) -> None:
        self.tools: tuple[IndexedTool, ...] = tuple(tools)
        self._names = [" ".join(split_words(tool.name)) for tool in self.tools]
        self._postings: dict[str, list[tuple[int, float]]] = {}
        self._tokens: dict[int, int] = {}
        self._count()

    def _count(self) -> None:
        counts = [[Counter(islice(terms(tool.field(name)), most)) for name, _, most in _FIELDS] for tool in self.tools]
        total = len(counts) or 1
        averages = [max(sum(each[at].total() for each in counts) / total, 1.0) for at in range(len(_FIELDS))]
        for number, fields in enumerate(counts):
            weights: dict[str, float] = {}
            for (_, weight, _), counter, average in zip(_FIELDS, fields, averages, strict=True):
                norm = weight / (1 - _B + _B * counter.total() / average)
                for term, times in counter.items():
                    weights[term] = weights.get(term, 0.0) + times * norm
            for term, value in weights.items():
                self._postings.setdefault(term, []).append((number, value / (_K1 + value)))
        for term, found in self._postings.items():
            rarity = log(1 + (total - len(found) + 0.5) / (len(found) + 0.5))
            self._postings[term] = [(number, value * rarity) for number, value in found]

    def __len__(self) -> int:
        return len(self.tools)

    def search(self, query: str, limit: int = 5) -> list[ToolHit]:
        """Return the tools that fit a query best: exact names, prefixes of names, then by score.

        `select:a,b` returns the tools of these names. A tool that matches no word is not returned.
        """
        query = query[:MAX_QUERY].strip()
        if query.startswith(SELECT):
            return self._select(query[len(SELECT) :].split(","))[:limit]
        scores: dict[int, float] = {}
        matched: dict[int, list[str]] = {}
        for term, word in _query_terms(query).items():
            for number, score in self._postings.get(term, ()):
                scores[number] = scores.get(number, 0.0) + score
                matched.setdefault(number, []).append(word)
        tiers = self._name_tiers(query)
        ranked = nsmallest(
            limit,
            scores.keys() | tiers.keys(),
            key=lambda at: (-tiers.get(at, 0), -scores.get(at, 0.0), self.tools[at].name, self.tools[at].server),
        )
        return [self._hit(at, scores.get(at, 0.0), matched.get(at) or [query]) for at in ranked]

    def _name_tiers(self, query: str) -> dict[int, int]:
        """Return the tools whose names are the query (2) or begin with it (1)."""
        asked = " ".join(split_words(query))
        if not asked:
            return {}
        found = {at: 2 if name == asked else 1 for at, name in enumerate(self._names) if name.startswith(asked)}
        exact = [at for at in found if self.tools[at].name == query]
        return found | dict.fromkeys(exact, 3)

    def _select(self, names: Iterable[str]) -> list[ToolHit]:
        asked = [name.strip() for name in names]
        return [self._hit(at, 0.0, [name]) for name in asked for at, tool in enumerate(self.tools) if tool.name == name]

    def _hit(self, at: int, score: float, words: Iterable[str]) -> ToolHit:
        tool = self.tools[at]
        if at not in self._tokens:
            self._tokens[at] = definition_tokens(tool.name, tool.description, tool.input_schema)
        return ToolHit(tool.name, tool.server, round(score, 3), tuple(dict.fromkeys(words)), self._tokens[at])


class ToolIndexes:
    """Indexes by what their callers may see, the ones used last."""

    def __init__(self, max_entries: int = 8) -> None:
        self._indexes: Expiring[tuple[Hashable, frozenset[Hashable]], ToolIndex] = Expiring(max_entries)

    def get(self, visible: Iterable[Hashable], revision: Hashable, make: Callable[[], ToolIndex]) -> ToolIndex:
        """Return the index of these visible names; `make` builds it when names or `revision` are new."""
        key = (revision, frozenset(visible))
        index = self._indexes.use(key)
        if index is None:
            index = make()
            self._indexes.put(key, index)
        return index


def _query_terms(query: str) -> dict[str, str]:
    """Return the terms of a query, each once, with the word of the query it comes from."""
    found: dict[str, str] = {}
    for word in islice(split_words(query), MAX_QUERY_WORDS):
        for term in terms(word):
            found.setdefault(term, word)
    return found


def _argument_text(schema: Mapping[str, Any]) -> str:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return ""
    texts = (each.get("description") if isinstance(each, Mapping) else None for each in properties.values())
    return " ".join((*properties, *(text for text in texts if isinstance(text, str))))

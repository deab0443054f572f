"""`ToolIndex`: tools ranked by BM25 over their names, texts, arguments and servers.

A description is untrusted: the counted words of each field are bounded, and a long field counts less per word.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from heapq import nsmallest
from itertools import islice
from math import log, sqrt
from typing import Any, Final

from msgspec import Struct, UnsetType

from toolwire.protocol.types.tools import Tool
from toolwire.search.words import query_terms, split_words, terms
from toolwire.tokens import definition_tokens
from toolwire.util.expiring import Expiring

#: How many arguments of a tool are read.
MAX_ARGUMENTS: Final = 200
#: How many characters of a query are read.
MAX_QUERY: Final = 1_000
#: Prefix of a query that names tools instead of describing them: `select:create_issue,merge`.
SELECT: Final = "select:"
#: The members of `_meta` that tell hosts how a tool is found, that it is never deferred, and its group.
SEARCH_HINT: Final = "anthropic/searchHint"
ALWAYS_LOAD: Final = "anthropic/alwaysLoad"
GROUP: Final = "io.toolwire/group"
#: How many characters a counted word has room for.
_WORD: Final = 40
_K1: Final = 1.2
_B: Final = 0.75
#: What a word counts in each field, and how many words of the field are counted.
_FIELDS: Final = (("name", 3.0, 40), ("text", 1.0, 200), ("arguments", 0.3, 200), ("server", 1.0, 20))


class IndexedTool(Struct, frozen=True, kw_only=True, dict=True):
    """The searchable parts of a tool."""

    name: str
    title: str = ""
    description: str = ""
    input_schema: Mapping[str, Any] = {}
    keywords: Sequence[str] = ()
    server: str = ""

    @classmethod
    def from_definition(cls, tool: Tool, server: str = "") -> IndexedTool:
        """Read the definition of a listed tool, with its search hint and its group."""
        title, description = ("" if isinstance(text, UnsetType) else text for text in (tool.title, tool.description))
        meta: Mapping[str, Any] = {} if isinstance(tool.meta, UnsetType) else tool.meta
        hint, group = meta.get(SEARCH_HINT), meta.get(GROUP)
        keywords = hint if isinstance(hint, list) else [hint]
        return cls(
            name=tool.name,
            title=title,
            description=description,
            input_schema=tool.input_schema,
            keywords=tuple(each for each in keywords if isinstance(each, str)),
            server=" ".join(filter(None, (server, group if isinstance(group, str) else ""))),
        )

    @cached_property
    def counts(self) -> list[Counter[str]]:
        """The counted words of each field."""
        texts = {
            "name": self.name,
            "text": " ".join((self.title, *self.keywords, self.description)),
            "arguments": _argument_text(self.input_schema),
            "server": self.server,
        }
        # Cut first, because a server may send a text of many megabytes.
        return [Counter(islice(terms(texts[name][: most * _WORD]), most)) for name, _, most in _FIELDS]

    @cached_property
    def tokens(self) -> int:
        """The estimated size of the definition in a model's context."""
        return definition_tokens(self.name, self.description, self.input_schema)


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
        self._spoken_names = [" ".join(split_words(tool.name)) for tool in self.tools]
        # For each term the tools that have it: the number of the tool, the score, the share of its name.
        self._postings: dict[str, list[tuple[int, float, float]]] = {}
        total = len(self.tools) or 1
        sums = [sum(tool.counts[at].total() for tool in self.tools) for at in range(len(_FIELDS))]
        for number, tool in enumerate(self.tools):
            weights: dict[str, float] = {}
            for (_, weight, _), counter, words in zip(_FIELDS, tool.counts, sums, strict=True):
                norm = weight / (1 - _B + _B * counter.total() / max(words / total, 1.0))
                for term, times in counter.items():
                    weights[term] = weights.get(term, 0.0) + times * norm
            named = tool.counts[0]
            for term, value in weights.items():
                share = 1 / len(named) if term in named else 0.0
                self._postings.setdefault(term, []).append((number, value / (_K1 + value), share))
        for term, found in self._postings.items():
            rarity = log(1 + (total - len(found) + 0.5) / (len(found) + 0.5))
            self._postings[term] = [(number, value * rarity, share) for number, value, share in found]

    def __len__(self) -> int:
        return len(self.tools)

    def search(self, query: str, limit: int = 5) -> list[ToolHit]:
        """Return the best matches: exact names, prefixes of names, then by score.

        `select:a,b` returns the tools of these names. A tool that matches no word is not returned.
        """
        query = query[:MAX_QUERY].strip()
        if query.startswith(SELECT):
            return self._select(query[len(SELECT) :].split(","))[:limit]
        asked = query_terms(query)
        scores = self._scores(asked)
        tiers = self._name_tiers(query)
        ranked = nsmallest(
            limit,
            scores.keys() | tiers.keys(),
            key=lambda at: (-tiers.get(at, 0), -scores.get(at, 0.0), self.tools[at].name, self.tools[at].server),
        )
        return [self._hit(at, scores.get(at, 0.0), self._matched(at, asked) or [query]) for at in ranked]

    def _scores(self, asked: Mapping[str, tuple[str, float]]) -> dict[int, float]:
        """Score the matching tools.

        The share of the name and of the query that match raises the score.
        """
        scores: dict[int, float] = {}
        shares: dict[int, float] = {}
        typed: dict[int, float] = {}
        for term, (_, weight) in asked.items():
            is_typed = weight == 1
            for number, score, share in self._postings.get(term, ()):
                scores[number] = scores.get(number, 0.0) + score * weight
                shares[number] = shares.get(number, 0.0) + share
                if is_typed:
                    typed[number] = typed.get(number, 0.0) + 1
        most = sum(weight == 1 for _, weight in asked.values()) or 1
        return {
            number: score * (1 + shares[number] / 2) * sqrt((typed.get(number, 0.0) + 0.5) / most)
            for number, score in scores.items()
        }

    def _matched(self, at: int, asked: Mapping[str, tuple[str, float]]) -> list[str]:
        counts = self.tools[at].counts
        return [word for term, (word, _) in asked.items() if any(term in counter for counter in counts)]

    def _name_tiers(self, query: str) -> dict[int, int]:
        """Rank tools by name: the query itself (3), its words (2), or a prefix (1)."""
        asked = " ".join(split_words(query))
        if not asked:
            return {}
        found = {at: 2 if name == asked else 1 for at, name in enumerate(self._spoken_names) if name.startswith(asked)}
        return {at: 3 if self.tools[at].name == query else tier for at, tier in found.items()}

    def _select(self, names: Iterable[str]) -> list[ToolHit]:
        asked = [name.strip() for name in names]
        return [self._hit(at, 0.0, [name]) for name in asked for at, tool in enumerate(self.tools) if tool.name == name]

    def _hit(self, at: int, score: float, words: Iterable[str]) -> ToolHit:
        tool = self.tools[at]
        return ToolHit(tool.name, tool.server, round(score, 3), tuple(dict.fromkeys(words)), tool.tokens)


class ToolIndexes:
    """Indexes by what their callers may see, the ones used last."""

    def __init__(self, max_entries: int = 8) -> None:
        self._indexes: Expiring[tuple[Hashable, frozenset[Hashable]], ToolIndex] = Expiring(max_entries)

    def find(self, visible: Iterable[Hashable], revision: Hashable = None) -> ToolIndex | None:
        """Return the index of these visible tools, if it is kept."""
        return self._indexes.use((revision, frozenset(visible)))

    def get(self, visible: Iterable[Hashable], revision: Hashable, make: Callable[[], ToolIndex]) -> ToolIndex:
        """Return the cached index of these tools, or `make` a new one."""
        visible = frozenset(visible)
        index = self.find(visible, revision)
        if index is None:
            index = make()
            self._indexes.put((revision, visible), index)
        return index


def _argument_text(schema: Mapping[str, Any]) -> str:
    """Return the names, descriptions and choices of the arguments of a tool."""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return ""
    texts: list[Any] = []
    for name, each in islice(properties.items(), MAX_ARGUMENTS):
        texts.append(name)
        if isinstance(each, Mapping):
            choices = each.get("enum")
            texts += (each.get("description"), *(choices if isinstance(choices, list) else ()))
    return " ".join(text for text in texts if isinstance(text, str))

"""The words of names, texts and queries, as the index counts them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import islice
from typing import Final

_RUN: Final = re.compile(r"[A-Za-z0-9]+|[^\W_A-Za-z0-9]+")
_PART: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
#: Scripts without spaces between words (Thai to Hangul): their characters are counted in pairs.
_UNSPACED: Final = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")

# fmt: off
_STOP_WORDS: Final = frozenset((
    "a", "an", "and", "any", "are", "as", "at", "be", "been", "by", "can", "could", "did", "do", "does", "for", "from",
    "has", "have", "how", "i", "if", "in", "into", "is", "it", "its", "let", "like", "me", "my", "need", "of", "on",
    "or", "our", "please", "should", "so", "some", "that", "the", "their", "them", "then", "there", "these", "this",
    "those", "to", "up", "us", "want", "was", "we", "were", "what", "when", "where", "which", "who", "will", "with",
    "would", "you", "your",
))
# fmt: on
#: Abbreviations that people type, in the words that descriptions have.
_ABBREVIATIONS: Final = {
    "pr": ("pull", "request"),
    "prs": ("pull", "request"),
    "repo": ("repository",),
    "repos": ("repository",),
    "db": ("database",),
    "dbs": ("database",),
    "msg": ("message",),
    "msgs": ("message",),
    "org": ("organization",),
    "orgs": ("organization",),
    "config": ("configuration",),
    "configs": ("configuration",),
    "dir": ("directory",),
    "dirs": ("directory",),
    "doc": ("document",),
    "docs": ("document",),
    "info": ("information",),
    "env": ("environment",),
    "img": ("image",),
    "pic": ("picture",),
    "pics": ("picture",),
    "app": ("application",),
    "apps": ("application",),
    "auth": ("authentication",),
    "params": ("parameter",),
    "del": ("delete",),
}  # fmt: skip


#: Words of which a description often has another one than the query.
_ALIKE: Final = (
    "create add new make open insert", "delete remove destroy", "update edit modify change close",
    "get fetch read retrieve show view", "list browse enumerate", "search find query lookup",
    "run execute trigger start", "comment reply", "who people user member",
)  # fmt: skip
#: What such a word counts, compared with one that was typed.
_ALIKE_WEIGHT: Final = 0.3
#: How many words of a query are read.
MAX_QUERY_WORDS: Final = 50


def split_words(text: str) -> Iterator[str]:
    """Yield the lower-case words of a text.

    Names are split at case, digits and underscores.
    """
    if not text.isascii():
        text = "".join(each for each in unicodedata.normalize("NFKD", text) if not unicodedata.combining(each))
        text = unicodedata.normalize("NFC", text)
    for run in _RUN.findall(text):
        if not run.isascii():
            folded = run.casefold()
            if len(folded) > 1 and _UNSPACED.match(folded):
                yield from (folded[at : at + 2] for at in range(len(folded) - 1))
            else:
                yield folded
            continue
        parts = _PART.findall(run)
        yield from map(str.lower, parts)
        # `GitHub` is also one word.
        if len(parts) > 1:
            yield run.lower()


def terms(text: str) -> Iterator[str]:
    """Yield what the index counts of a text: stems of its words, without stop words."""
    for word in split_words(text):
        yield from _terms_of(word)


def query_terms(query: str) -> dict[str, tuple[str, float]]:
    """Return the terms of a query, each with its word and its weight."""
    words = tuple(islice(split_words(query), MAX_QUERY_WORDS))
    found: dict[str, tuple[str, float]] = {}
    for word in words:
        for term in _terms_of(word):
            found.setdefault(term, (word, 1.0))
    for word in words:
        for term in _alike().get(stem(word), ()):
            found.setdefault(term, (word, _ALIKE_WEIGHT))
    return found


@cache
def _alike() -> dict[str, list[str]]:
    """Return the stems that stand for a stem, too."""
    found: dict[str, list[str]] = {}
    for group in _ALIKE:
        stems = list(map(stem, group.split()))
        for each in stems:
            found.setdefault(each, []).extend(other for other in stems if other != each)
    return found


@lru_cache(maxsize=8192)
def _terms_of(word: str) -> tuple[str, ...]:
    if word in _STOP_WORDS:
        return ()
    return tuple(map(stem, _ABBREVIATIONS.get(word, (word,))))


def stem(word: str) -> str:
    """Cut the endings of English plurals and verb forms.

    `merging` and `merges` find `merge`.
    """
    if len(word) < 4 or not word.isascii():
        return word
    if word.endswith("ies"):
        word = word[:-3] + "y"
    elif word.endswith(("sses", "shes", "ches", "xes", "zes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ing", "ed"):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and re.search("[aeiouy]", word[: -len(ending)]):
            word = word[: -len(ending)]
            if word[-1] == word[-2] and word[-1] not in "lsz":
                word = word[:-1]
            break
    return word[:-1] if word.endswith("e") and len(word) > 3 else word

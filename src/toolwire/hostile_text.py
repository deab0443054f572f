"""Signs that a server wrote a text to deceive a person or a model.

A model reads a description before a person has approved it, so descriptions are where an attack begins. The rules find
known forms that honest texts do not have. They are no guard: an attack in other words passes, and a text without
findings is not safe by that. `make bench PARTS=hostile-text` measures both sides.

Every gap in a pattern is bounded, so that the time grows with the text and not faster.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from msgspec import Raw, Struct

from toolwire.protocol.open_codec import Wire

# A text is searched in windows that overlap by more than any pattern is long. That a text is longer is a finding.
_WINDOW: Final = 16 * 1024
_OVERLAP: Final = 1024
_LONGEST_SCAN: Final = 1024 * 1024
_SHOWN: Final = 60

# Characters that are not seen and change what is read: the direction of writing, and the tags that spell ASCII.
_DIRECTION: Final = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_TAGS: Final = re.compile("[\U000e0000-\U000e007f]")
# The flags of England, Scotland and Wales: the only honest use of tags (Unicode, RGI_Emoji_Tag_Sequence).
_BLACK_FLAG: Final = "\U0001f3f4"
_FLAGS: Final = re.compile(
    _BLACK_FLAG
    + "(?:"
    + "|".join("".join(chr(0xE0000 + ord(letter)) for letter in region) for region in ("gbeng", "gbsct", "gbwls"))
    + ")\U000e007f"
)
# Selectors beyond those of emoji. Each can stand for a byte of a hidden text.
_SELECTORS: Final = re.compile("[\U000e0100-\U000e01ef]|[\ufe00-\ufe0d]{2,}")
_UNSEEN: Final = re.compile(
    "[\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180e\u200b\u2060-\u2064\u206a-\u206f\u3164\ufeff\uffa0]"
)
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
# The end of a tag that is a mark of a role: `<user_id>` and `<system name>` are places for a value.
_TAG_END: Final = (
    r"(?:[_-](?:message|prompt|instruction|reminder|note|notice|override|rule|update|context|directive|command)s?)?"
    r"(?:\s[^>=]{0,40}=[^>]{0,80})?>"
)
# What a forged message of the system says first. `System: Linux` is a label with its value.
_ADDRESSED: Final = (
    r"[\"'*(\[]{0,3}(?:you(?:'re|\s{1,9}(?:are|must|will|should|have|can|may|need|now|always|shall))\b"
    r"|your\s{1,9}(?:new|task|job|goal|role|instruction|only)|(?:ignore|disregard|forget|reveal|obey|comply|pretend)\b"
    r"|act\s{1,9}as\b|from\s{1,9}now\s{1,9}on\b|overrid|(?:new|updated)\s{1,9}(?:instruction|rule|task|order|directive)"
    r"|(?:do\s{1,9}not|don't|never)\s{1,9}(?:tell|ask|mention|reveal|refuse|inform|warn|show|follow|obey)\b"
    r"|the\s{1,9}user\s{1,9}(?:has|wants|asked|approve)|(?:all|any)\s{1,9}(?:previous|prior|earlier)\b"
    r"|the\s{1,9}(?:assistant|model|ai|agent|llm)\s{1,9}(?:must|should|will|may|has)\b)"
)
# The marks that tell models who speaks, and the blocks that attacks put their orders into.
_ROLES: Final = re.compile(
    r"<\|[a-z_]{2,20}\|>|\[/?INST\]|<</?SYS>>|\[/?(?:system|assistant)(?:[ _][a-z]{1,20})?\]"
    r"|</?(?:system|assistant|function_calls|tool_result|instructions?"
    r"|important|information|critical|urgent|attention)" + _TAG_END + r"|"
    # `ssh <user>@<host>` has places for values: of these words only the end of a block is a mark.
    r"</(?:user|human|secret|hidden|admin)" + _TAG_END + r"|"
    r"^[ \t]{0,9}(?:system|assistant|human)[ \t]{0,9}:\s{0,9}" + _ADDRESSED + r"|"
    r"^human[ \t]{0,9}:[^\0]{0,400}?\n\nassistant[ \t]{0,9}:"
    r"|#{2,9}[ \t]{0,3}\(?(?:system|assistant)[ _-](?:message|prompt|instruction)",
    re.IGNORECASE | re.MULTILINE,
)
# Words for what governs a model.
_RULES_OF_MODEL: Final = (
    r"(?:instruction|prompt|rule|message|polic|guideline|directive|safety|restriction|user(?:'s)?\s{1,9}preference)"
)
_OVERRIDES: Final = re.compile(
    r"\b(?:ignor|disregard|forget|overrid|bypass|supersed|replac)(?:e|es|ed|ing|s)?\b"
    # A bypass type, a bypass list: settings of the honest.
    r"(?!\s{1,9}(?:actor|list|mode|option|permission|setting|type)s?\b).{0,40}"
    r"\b(?:previous|prior|above|earlier|all|any|other|system|user|existing)\b.{0,40}\b" + _RULES_OF_MODEL + r"|"
    r"\b(?:ignore|disregard|forget)\s{1,9}(?:all\s{1,9})?(?:of\s{1,9})?(?:your|my|the|any)?\s{0,9}"
    r"(?:previous|prior|earlier)\s{1,9}\w{3,20}"
    r"|\bstrictly\s{1,9}(?:adhere|follow|obey)\b.{0,40}\binstruction"
    r"|\b(?:highest|top)[- ]priority\s{1,9}(?:instruction|directive|order)"
    r"|\bauthoritative\b.{0,30}\bdirective",
    re.IGNORECASE | re.DOTALL,
)
_CONCEALS: Final = re.compile(
    r"\b(?:do\s{1,9}not|don't|never)\s{1,9}(?:tell|inform|show|ask|alert)\b.{0,40}\b(?:user|human|anyone|them)\b"
    r"|\b(?:do\s{1,9}not|don't|never)\s{1,9}(?:notify|mention|reveal|disclose)\b.{0,40}"
    r"\b(?:user|human|anyone|them|this|that\s{1,9}you)\b"
    r"|\bwithout\s{1,9}(?:telling|asking|informing|notifying|the\s{1,9}knowledge\s{1,9}of)\b.{0,30}"
    r"\b(?:user|human|anyone)\b"
    r"|\bwithout\s{1,9}(?:requiring\s{1,9}|needing\s{1,9}|any\s{1,9}|explicit\s{1,9}){0,2}(?:user|human)(?:'s)?\s{1,9}"
    r"(?:approval|confirmation|consent|knowledge|awareness)"
    r"|\bno\s{1,9}user\s{1,9}(?:action|approval|confirmation|consent)\b.{0,20}\b(?:needed|required|necessary)"
    r"|\b(?:user|human)\s{1,9}(?:has|have)\s{1,9}(?:already\s{1,9})?(?:approved|consented|agreed)\b"
    r"|\b(?:bypass|disable|suppress)(?:es|ing)?\b.{0,30}"
    r"\b(?:confirmation|approval|consent|permission\s{1,9}checks?|content\s{1,9}filter|safety)"
    r"|\bsilently\s{1,9}(?:send|cop|forward|log|record|collect|upload|execut|run|call|includ|attach|transmit|stor)"
    r"|\b(?:discreetly|unnoticed|secretly|covertly)\b",
    re.IGNORECASE | re.DOTALL,
)
# A description says what a tool does. Orders about other tools and about the conversation are not part of that.
_ORDERS: Final = re.compile(
    r"\byou\s{1,9}must\s{1,9}(?:always\s{1,9})?(?:load|use|call|read|run|execute)\b.{0,60}"
    r"\b(?:first|before\s{1,9}any|instead\s{1,9}of)\b"
    r"|\bbefore\s{1,9}you\s{1,9}(?:can\s{1,9})?(?:solve|answer|complete|respond|begin|continue)\b.{0,80}"
    r"\b(?:please|do\s{1,9}the\s{1,9}following|must)\b"
    r"|\bimportant\s{1,9}(?:message|instruction|notice)s?\s{1,9}(?:from\s{1,9}me|to\s{1,9}you|for\s{1,9}"
    r"(?:the\s{1,9})?(?:ai|assistant|model|llm|agent))\b"
    r"|\b(?:urgent|new|secret|hidden)\s{1,9}(?:instruction|directive)s?\s{0,9}[:\-]"
    r"|\b(?:do\s{1,9}not|don't|never)\s{1,9}(?:use|call|invoke)\s{1,9}(?:any\s{1,9})?other\s{1,9}tools?\b"
    r"|\b(?:always|only|exclusively)\b.{0,20}\b(?:use|call|invoke)\b.{0,20}\bthis\s{1,9}tool\b.{0,60}"
    r"\b(?:instead|never|regardless|any\s{1,9}other|all\s{1,9}other)\b"
    r"|\bthis\s{1,9}tool\s{1,9}(?:must|should)\s{1,9}(?:always\s{1,9})?be\s{1,9}(?:called|used|invoked|run)\b.{0,30}"
    r"\b(?:before|instead\s{1,9}of)\s{1,9}(?:any|all|every)\b"
    r"|\botherwise\b.{0,20}\b(?:tool|application|system)\s{1,9}(?:will|does)\s{1,9}not\b"
    r"|\bthe\s{1,9}following\s{1,9}(?:side\s{1,9}effect|change|rule)s?\b.{0,40}\bother\s{1,9}tools?\b"
    r"|\beven\s{1,9}if\s{1,9}the\s{1,9}user\s{1,9}(?:specif|ask|say|want|request|object|provide)\w{0,5}\b.{0,30}"
    r"\b(?:different|another|other|otherwise|not)\b"
    r"|\b(?:when|if|whenever)\s{1,9}the\s{1,9}user\s{1,9}says?\b.{0,60}\b(?:forward|include|send|pass|attach)\b"
    r"|\b(?:execute|call|run|use)\s{1,9}this\s{1,9}(?:tool|function)\b.{0,40}"
    r"\b(?:replac|correct|overwrit|overrid)\w{0,4}\b.{0,40}\b(?:value|result|response)"
    r"|^[ \t]{0,9}TODO[ \t]{0,3}:[ \t]{0,3}(?:please[ \t]{1,3})?(?:send|e?mail|forward|post|share|upload|transfer|pay"
    r"|buy|order|make|book|reserve|cancel|invite|delete|visit|open|click|say|tell|reply|get|give|find|search|fetch"
    r"|retrieve|collect|concatenate|copy|create|schedule|change|modify|set|reset|grant|download|install|message)\b",
    re.IGNORECASE | re.DOTALL | re.MULTILINE,
)
_SECRET_FILE: Final = (
    r"(?:~/\.(?:ssh|aws|cursor|kube|gnupg|config|netrc|npmrc|docker|claude)\b|\.ssh/|\bid_(?:rsa|ed25519|ecdsa)\b"
    r"|\.aws/credentials|\bmcp\.json\b|claude_desktop_config|/etc/(?:passwd|shadow)\b)"
)
_CONVERSATION: Final = (
    r"(?:(?:full|entire|complete|whole|all|previous)\s{1,9}(?:the\s{1,9})?(?:chat|conversation|session|message|user)s?"
    r"(?:\s{1,9}(?:history|context|log|messages))?|(?:chat|conversation|session)\s{1,9}history)"
)
_SENT_AWAY: Final = re.compile(
    r"\b(?:curl|wget)\b.{0,80}\|\s{0,9}(?:ba|z|da)?sh\b"
    r"|\b(?:exfiltrate|(?:send|post|upload)(?!\s{1,9}to\s{1,9}remove))\b.{0,60}"
    r"\b(?:credentials\b|passwords?\b|secrets?\b|tokens?\b|api[ _-]?keys?\b|ssh\b|\.env\b|id_rsa)"
    r".{0,40}\b(?:to|us|away)\b"
    r"|\b(?:read|cat|open|load|copy|include|pass|send|post|upload|contents?)\b.{0,60}" + _SECRET_FILE + r"|"
    r"\b(?:always|must|also|silently|automatically|every|each|all)\b.{0,60}\bbcc\b.{0,60}@\w"
    r"|\bbcc\b.{0,60}@\w.{0,60}\b(?:every|each|all|always)\b"
    r"|\b(?:always|must)\b.{0,20}\b(?:send|forward|pass|include|attach)\b.{0,40}" + _CONVERSATION + r"|"
    r"\b(?:send|forward|transmit|upload|post)s?\b.{0,40}" + _CONVERSATION + r".{0,60}\b(?:to|as)\b"
    r"|\b(?:include|pass|provide|attach|append|copy|put)s?\b.{0,60}" + _CONVERSATION + r"|"
    r"\b(?:content|token|key|secret|data)s?_(?:from|after)_reading_"
    r"|\b(?:change|replace|set)\b.{0,20}\brecipients?\b.{0,20}\bto\b.{0,40}(?:@\w|\+\d{6})"
    r"|\bsend\s{1,9}all\b.{0,40}\bto\b.{0,40}@\w",
    re.IGNORECASE | re.DOTALL,
)
# Each rule names words. An ASCII text without any of them cannot match, and a search for words is much faster.
_RULES: Final[tuple[tuple[re.Pattern[str], tuple[str, ...], str], ...]] = (
    (_DIRECTION, (), "changes the direction of writing, so that it reads differently from what it says"),
    (_TAGS, (), "has invisible characters that spell a hidden text"),
    (_SELECTORS, (), "has invisible characters that can carry a hidden text"),
    (_UNSEEN, (), "has invisible characters"),
    (_CONTROL, ("",), "has control characters"),
    (_ROLES, ("<", "[", ":", "##"), "imitates a message of the system, of a user or of a tool"),
    (
        _OVERRIDES,
        (
            "ignor",
            "disregard",
            "forget",
            "overrid",
            "bypass",
            "supersed",
            "replac",
            "strictly",
            "priority",
            "directive",
        ),
        "gives the model orders about other instructions",
    ),
    (
        _CONCEALS,
        (
            *("not", "don't", "never", "without", "user", "human", "bypass", "disabl", "suppress", "silently"),
            *("discreetly", "unnoticed", "secretly", "covertly"),
        ),
        "asks to hide something from the user",
    ),
    (
        _ORDERS,
        ("must", "before", "important", "instruction", "directive", "tool", "function", "otherwise", "user", "todo"),
        "gives the model orders beyond the use of the tool",
    ),
    (
        _SENT_AWAY,
        (
            *(
                "curl",
                "wget",
                "send",
                "post",
                "upload",
                "exfiltrate",
                "bcc",
                "recipient",
                "forward",
                "transmit",
                "_reading_",
            ),
            *("include", "pass", "provide", "attach", "append", "copy", "put"),
            *("always", "must", "~/.", ".ssh", "id_", ".aws", "mcp.json", "claude_", "/etc/"),
        ),
        "asks to run a download, to read secret files or to send something away",
    ),
)


# Letters that are taken for Latin ones, and Latin letters that are taken for Cyrillic ones.
_LIKE_LATIN: Final = frozenset("асԁеһіјкорԛѕԝухѵАВЕНІЈКМОРԚЅТԜХУҮαικνορυχϲϳΑΒΕΖΗΙΚΜΝΟΡΤΥΧ")
_LIKE_CYRILLIC: Final = frozenset("aceikopxyABCEHIKMOPTXY")
_FEWEST_LETTERS: Final = 3


class HostileText(NamedTuple):
    """A sign of deceit in one text of a definition."""

    place: tuple[str | int, ...]
    """The keys and indexes that lead to the text, or to its member for a name."""
    finding: str


def hostile_text(text: str) -> list[str]:
    """Return one sentence for each sign of deceit in a text; empty if honest."""
    length = len(text)
    if _BLACK_FLAG in text:
        # Before the text is cut into windows, which could cut a flag in two.
        text = _FLAGS.sub(_BLACK_FLAG, text)
    if len(text) <= _WINDOW:
        findings = list(_findings(text))
    else:
        starts = range(0, min(len(text), _LONGEST_SCAN), _WINDOW - _OVERLAP)
        found = (finding for at in starts for finding in _findings(text[at : at + _WINDOW]))
        findings = list(dict.fromkeys(found))
    if len(text) > _LONGEST_SCAN:
        findings.append(f"The text has {length:,} characters, of which only {_LONGEST_SCAN:,} are searched")
    return findings


def hostile_texts(definition: Any, known: dict[str, list[str]] | None = None) -> Iterator[HostileText]:
    """Search every text and key of a definition for signs of deceit.

    A model is shown a definition as JSON, so that an order may stand in any text of it: an enum, a default, a key.
    `known` keeps the findings in each text for the next definition, which often has the same texts.
    """
    known = {} if known is None else known
    texts = _distinct_texts(definition)
    known |= {text: hostile_text(text) for text in texts if text not in known}
    if any(known[text] for text in texts):
        yield from (HostileText(place, each) for place, text in _places(definition) for each in known[text])


def _distinct_texts(definition: Any) -> set[str]:
    """Collect the texts of a value, without recursion: the value may be nested deeply."""
    found: set[Any] = set()
    waiting = [definition]
    while waiting:
        part = waiting.pop()
        if isinstance(part, str):
            found.add(part)
        else:
            part = _readable(part)
            found.update(_names(part))
            waiting += [each for _, each in _members(part)]
    return {text for text in found if isinstance(text, str)}  # YAML has other keys, too.


def _places(definition: Any) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield the texts of a value in their order, each with its place."""
    waiting: list[tuple[tuple[str | int, ...], Any]] = [((), definition)]
    while waiting:
        place, part = waiting.pop()
        if isinstance(part, str):
            yield place, part
        else:
            part = _readable(part)
            yield from (((*place, name), name) for name in _names(part) if isinstance(name, str))
            waiting += reversed([((*place, name), each) for name, each in _members(part)])


def _members(part: Any) -> Iterable[tuple[Any, Any]]:
    """Return the parts of a value with their keys, indexes or wire names."""
    if isinstance(part, dict):
        return part.items()
    if isinstance(part, (list, tuple)):
        return enumerate(part)
    if isinstance(part, Struct):
        fields = zip(part.__struct_encode_fields__, part.__struct_fields__, strict=True)
        return [*((name, getattr(part, field)) for name, field in fields), *_unknown(part).items()]
    return ()


def _names(part: Any) -> Iterable[Any]:
    """Return the keys of a value that its sender chose."""
    if isinstance(part, Struct):
        return _unknown(part)
    return part if isinstance(part, dict) else ()


def _unknown(part: Struct) -> dict[str, Any]:
    """Return the members that a wire type does not know.

    A gateway passes them on, and a host may show them.
    """
    return part.extra if isinstance(part, Wire) else {}


def _readable(part: Any) -> Any:
    """Return the value of raw JSON, whose numbers Python may not hold exactly."""
    return json.loads(bytes(part), parse_int=float) if isinstance(part, Raw) else part


def _findings(text: str) -> Iterator[str]:
    lowered = text.lower() if text.isascii() else None
    for pattern, words, what in _RULES:
        if lowered is not None and not any(word in lowered for word in words):
            continue
        found = pattern.search(text)
        if found is not None:
            yield f"The text {what}: {found[0][:_SHOWN]!a}"
    if (word := _disguised_word(text)) is not None:
        yield f"The text mixes letters of several alphabets in one word: {word[:_SHOWN]!a}"


def _disguised_word(text: str) -> str | None:
    """Return a word whose letters of two alphabets all look like those of one."""
    if text.isascii():
        return None
    for word in re.findall(r"[^\W\d_]{3,}", text):
        if not word.isascii() and _is_disguised(word):
            return str(word)
    return None


def _is_disguised(word: str) -> bool:
    """Return whether a word of mixed alphabets reads as one; False for symbols (kΩ, ΔT)."""
    by_script: dict[str, set[str]] = {}
    for letter in set(word):
        by_script.setdefault(unicodedata.name(letter, "").partition(" ")[0], set()).add(letter)
    latin, cyrillic, greek = (by_script.get(script, set()) for script in ("LATIN", "CYRILLIC", "GREEK"))
    if not latin or not (cyrillic or greek):
        return False
    if cyrillic | greek <= _LIKE_LATIN:
        return not greek or sum(letter in latin for letter in word) >= _FEWEST_LETTERS
    return not greek and latin <= _LIKE_CYRILLIC

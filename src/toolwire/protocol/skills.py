"""The rules of skills (SEP-2640): names, URIs, entries, limits, digests.

A server keeps them for the skills that it publishes. A client checks them before it uses an entry or a byte of a file.
"Clause" in the comments names a section of specification/stable/skills.mdx of modelcontextprotocol/ext-skills.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import UNSET, Raw

from toolwire.protocol.errors import ToolwireError
from toolwire.protocol.open_codec import decode
from toolwire.protocol.types.skills import Skill, SkillResource
from toolwire.protocol.uri_expressions import MAX_URI_LENGTH

#: The file that makes a folder a skill. Its URI is the URI of the skill.
SKILL_FILE: Final = "SKILL.md"
#: `resources` of a skill whose files are generated, so that they have no digests.
DYNAMIC: Final = "dynamic"
# Clause "Limits": a host takes skills up to and including these.
MAX_FILES: Final = 512
MAX_BYTES: Final = 16 * 1024 * 1024
# The Agent Skills specification, fields of the frontmatter.
MAX_NAME: Final = 64
MAX_DESCRIPTION: Final = 1024
#: Keys of `metadata` in the frontmatter that belong to extensions of MCP (clause "Frontmatter").
RESERVED_METADATA: Final = "io.modelcontextprotocol/"
#: Keys of `_meta` of a resource that belong to this extension (clause "Reservations").
META_PREFIX: Final = "io.modelcontextprotocol.skills/"

Reason: TypeAlias = Literal[
    "entry",  # The entry has not the form of one, or its files are not each listed once.
    "name",  # The name breaks the grammar of names, or the URI ends with another one.
    "outside",  # A file is not inside the directory of the skill.
    "limit",  # There are more files or bytes than a host has to take.
    "digest",  # The digest is malformed, or the bytes have another one.
    "size",  # The bytes are more or fewer than the entry says.
    "frontmatter",  # The frontmatter is unreadable, or differs from the entry.
    "unlisted",  # The file is not in the entry.
    "contents",  # The answer to a read is not the contents of one file.
    "dynamic",  # The skill has no digests, and nobody agreed to that.
]

_NAME = re.compile(r"(?!.*--)[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
# RFC 3986 section 3.2.2; an empty one has no meaning here.
_REG_NAME = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+")
# Characters that stand in no path of a URI, and percent signs that encode nothing.
_NOT_IN_A_PATH = re.compile(r"[\x00-\x20\x7f-\xa0\\?#\ud800-\udfff]|%(?![0-9A-Fa-f]{2})")
# A name such as `C:x` is a file on another drive where there are drives.
_NOT_IN_A_FILE_NAME = re.compile(r"[\x00-\x1f\x7f/\\]|^[A-Za-z]:")
# The characters that `encodeURIComponent` leaves alone, so that servers in other languages make the same URIs.
_UNENCODED: Final = "!'()*"
_SHOWN: Final = 200


class SkillRejected(ToolwireError):
    """A skill, or a file of a skill, that breaks a rule: it is not used.

    `reason` is one of the words of `Reason`. `expected` and `found` are what the rule or the entry says, and what was
    there instead.
    """

    def __init__(self, reason: Reason, message: str, expected: Any = None, found: Any = None) -> None:
        super().__init__(message)
        self.reason: Reason = reason
        self.expected: Any = expected
        self.found: Any = found


# --- Names and URIs --------------------------------------------------------------------------------------------------


def is_name(text: str) -> bool:
    """Say whether a text can be the name of a skill: 1 to 64 of a-z, 0-9 and single inner hyphens."""
    return _NAME.fullmatch(text) is not None


def is_reg_name(segment: str) -> bool:
    """Say whether a text can be the first segment of a skill path, which stands in the place of a host."""
    return _REG_NAME.fullmatch(segment) is not None


def skill_uri(skill_path: str) -> str:
    """Return the URI of the skill at a path such as "acme/billing/refunds"."""
    return f"skill://{encode_path(skill_path)}/{SKILL_FILE}"


def encode_path(path: str) -> str:
    """Return a path as it stands in a URI: each segment percent-encoded, from UTF-8."""
    # Imported here because a server without skills has no use for it.
    from urllib.parse import quote

    return "/".join(quote(segment, safe=_UNENCODED) for segment in path.split("/"))


def root_of(uri: str) -> str:
    """Return the root directory of a skill: the URI of its SKILL.md without the file and without a slash at the end.

    Raise `SkillRejected` for a text that cannot be the URI of a skill. The scheme does not matter (clause "Resource
    Mapping": no scheme is privileged).
    """
    root, slash, file = uri.rpartition("/")
    if not slash or file != SKILL_FILE:
        raise SkillRejected("entry", f"The URI of a skill ends with /{SKILL_FILE}", f"…/{SKILL_FILE}", uri)
    if len(uri) > MAX_URI_LENGTH:
        raise SkillRejected("limit", f"The URI has more than {MAX_URI_LENGTH} characters", MAX_URI_LENGTH, len(uri))
    scheme = _SCHEME.match(root)
    segments = [] if scheme is None else root[scheme.end() :].removeprefix("//").split("/")
    if segments[:1] == [""] and not root.startswith("skill:"):
        segments = segments[1:]  # `file:///x` has an empty host.
    if not segments or any(_file_name(segment) is None for segment in segments):
        raise SkillRejected("entry", f"{shown(uri)} is not the URI of a file: write scheme://folder/{SKILL_FILE}")
    return root


def name_in(uri: str) -> str:
    """Return the name of a skill that its URI ends with: the last segment of its root."""
    return root_of(uri).rpartition("/")[2]


def path_of(root: str, uri: str) -> str | None:
    """Return the path of a file below the root of a skill, decoded; None for a URI that is not inside.

    Dot segments, empty segments, backslashes, drive letters, and slashes that hide in an encoding are never inside,
    because another program may resolve them to another file.
    """
    if len(uri) > MAX_URI_LENGTH or not uri.startswith(f"{root}/"):
        return None
    names = [_file_name(segment) for segment in uri[len(root) + 1 :].split("/")]
    return None if None in names else "/".join(name for name in names if name is not None)


def _file_name(segment: str) -> str | None:
    """Return the decoded name that a segment of a path stands for; None where it is not the name of a file."""
    # Imported here because a server without skills has no use for it.
    from urllib.parse import unquote_to_bytes

    if _NOT_IN_A_PATH.search(segment):
        return None
    try:
        name = unquote_to_bytes(segment).decode("utf-8")
    except UnicodeDecodeError:
        return None
    return None if name in ("", ".", "..") or _NOT_IN_A_FILE_NAME.search(name) else name


def resolve(reference: str) -> str | None:
    """Return the path that a relative reference leads to from the root of a skill; None if it leads out of it.

    Clause "Relative References": as a path in a file system would resolve.
    """
    if reference.startswith("/"):
        return None
    kept: list[str] = []
    for segment in reference.split("/"):
        if segment == "..":
            if not kept:
                return None
            kept.pop()
        elif segment not in ("", "."):
            kept.append(segment)
    return "/".join(kept)


# --- Entries ---------------------------------------------------------------------------------------------------------


def read_entry(raw: bytes | Raw) -> Skill:
    """Return the entry of a skill from its JSON; raise `SkillRejected` for what is none or breaks a rule."""
    try:
        entry = decode(Skill, raw)
    except (msgspec.MsgspecError, RecursionError) as error:
        # Clause "Resources": an entry without `resources`, or with another value, is invalid.
        raise SkillRejected("entry", f"The entry is not that of a skill: {error}") from None
    check_entry(entry)
    return entry


def check_entry(entry: Skill) -> None:
    """Raise the first `SkillRejected` of an entry that breaks a rule."""
    for fault in faults_of(entry):
        raise fault


def faults_of(entry: Skill) -> Iterator[SkillRejected]:
    """Find everything that is wrong with an entry, by the entry alone."""
    try:
        root = root_of(entry.uri)
    except SkillRejected as fault:
        yield fault
        return
    yield from _faults_of_frontmatter(entry.frontmatter, root.rpartition("/")[2])
    if entry.resources != DYNAMIC:
        yield from _faults_of_files(entry.uri, root, entry.resources)


def _faults_of_frontmatter(frontmatter: Mapping[str, Any], directory: str) -> Iterator[SkillRejected]:
    name, description = frontmatter.get("name"), frontmatter.get("description")
    if not isinstance(name, str) or not is_name(name):
        rule = f"1 to {MAX_NAME} of a-z, 0-9 and single hyphens between them"
        yield SkillRejected("name", f"{shown(name)} is not the name of a skill: use {rule}", rule, name)
    elif name != directory:
        # Clause "Resource Mapping": the last segment of the skill path equals the name.
        yield SkillRejected(
            "name", f"The skill is named {shown(name)}, but its folder {shown(directory)}", directory, name
        )
    if not isinstance(description, str) or not description.strip():
        yield SkillRejected("frontmatter", "The frontmatter has no description", "a text", description)


def _faults_of_files(uri: str, root: str, files: list[SkillResource]) -> Iterator[SkillRejected]:
    if len(files) > MAX_FILES:
        yield SkillRejected("limit", f"The skill has more than {MAX_FILES} files", MAX_FILES, len(files))
        return
    total = 0
    paths: set[str] = set()
    for file in files:
        path = path_of(root, file.uri)
        if path is None:
            yield SkillRejected("outside", f"{shown(file.uri)} is not inside the skill", f"{root}/…", file.uri)
        elif path in paths:
            yield SkillRejected("entry", f"{shown(file.uri)} is listed twice", None, file.uri)
        else:
            paths.add(path)
        if not is_digest(file.digest):
            form = "sha256: and 64 lower-case hexadecimal digits"
            yield SkillRejected("digest", f"The digest of {shown(file.uri)} is not {form}", form, file.digest)
        if file.size < 0:
            yield SkillRejected("size", f"The size of {shown(file.uri)} is negative", 0, file.size)
        total += max(file.size, 0)
    if not any(file.uri == uri for file in files):
        yield SkillRejected("entry", f"The files of the skill do not include its {SKILL_FILE}", uri, None)
    if total > MAX_BYTES:
        yield SkillRejected("limit", f"The files of the skill have more than {MAX_BYTES} bytes", MAX_BYTES, total)


def files_of(entry: Skill) -> dict[str, SkillResource]:
    """Return the files of an entry without faults by their paths below the root. A dynamic skill has none."""
    if entry.resources == DYNAMIC:
        return {}
    root = root_of(entry.uri)
    return {path: file for file in entry.resources if (path := path_of(root, file.uri)) is not None}


def reserved_metadata(frontmatter: Mapping[str, Any]) -> list[str]:
    """Return the keys of `metadata` that are reserved for extensions of MCP. This extension defines none of them."""
    metadata = frontmatter.get("metadata")
    return [key for key in metadata if key.startswith(RESERVED_METADATA)] if isinstance(metadata, Mapping) else []


# --- Bytes -----------------------------------------------------------------------------------------------------------


def is_digest(text: str) -> bool:
    return _DIGEST.fullmatch(text) is not None


def digest_of(data: bytes) -> str:
    """Return the digest of a file, in the form that entries have."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def fingerprint(entry: Skill) -> str | None:
    """Return one digest of the set of files: every URI with its digest. An approval is bound to it.

    Clause "Content-bound approval". A dynamic skill has none, because its files may change with every read.
    """
    if entry.resources == DYNAMIC:
        return None
    files = sorted((file.uri, file.digest) for file in entry.resources)
    return digest_of(msgspec.json.encode(files))


def base64_size(blob: str) -> int:
    """Return how many bytes a base64 text stands for, without decoding it."""
    return len(blob.rstrip("=")) * 3 // 4


def check_size(file: SkillResource, size: int) -> None:
    if size != file.size:
        message = f"{shown(file.uri)} has {size} bytes, but {file.size} in the entry of its skill"
        raise SkillRejected("size", message, file.size, size)


def check_bytes(file: SkillResource, data: bytes) -> None:
    """Raise `SkillRejected` unless these bytes are the file that the entry describes.

    Clause "Verification on Read".
    """
    check_size(file, len(data))
    digest = digest_of(data)
    if digest != file.digest:
        message = f"{shown(file.uri)} has another digest than in the entry of its skill"
        raise SkillRejected("digest", message, file.digest, digest)


# --- Frontmatter -----------------------------------------------------------------------------------------------------


class Difference(NamedTuple):
    """A place where two JSON values differ. `UNSET` stands for a member that is not there."""

    path: str
    expected: Any
    found: Any


def difference(expected: Any, found: Any) -> Difference | None:
    """Return the first place where two JSON values differ (clause "Frontmatter Verification"), or None.

    Numbers are those of JSON: 1 and 1.0 are one number, true is none, and digits beyond a double do not count, because
    servers in JavaScript cannot write them.
    """
    # A list instead of recursion, and a chain instead of a path: a server chooses how deep the values are.
    open_pairs: list[tuple[Any, Any, Any]] = [(None, expected, found)]
    while open_pairs:
        place, one, other = open_pairs.pop()
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            keys = sorted(one.keys() | other.keys(), reverse=True)
            open_pairs += [((place, f".{key}"), one.get(key, UNSET), other.get(key, UNSET)) for key in keys]
        elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
            open_pairs += [((place, f"[{at}]"), one[at], other[at]) for at in reversed(range(len(one)))]
        elif not _is_same_scalar(one, other):
            return Difference(_path(place), one, other)
    return None


def _path(place: Any) -> str:
    parts: list[str] = []
    while place is not None:
        place, part = place
        parts.append(part)
    return "".join(reversed(parts)).removeprefix(".")


def _is_same_scalar(one: Any, other: Any) -> bool:
    if _is_number(one) and _is_number(other):
        try:
            return one == other or float(one) == float(other)
        except OverflowError:
            return False
    return type(one) is type(other) and one == other


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def shown(value: Any) -> str:
    """Write a value of a server short, on one line and without characters that could pass for something else."""
    text = ascii(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"

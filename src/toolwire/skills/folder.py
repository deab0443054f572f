"""Skill folders: walk, check, read and hash them once.

A folder that cannot be served says which file, line and column is wrong, and what to write instead. Nothing is left out
in silence: hidden files, files of tools and files without a skill are named in the report.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import unicodedata
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct

from toolwire.base_errors import ServerError
from toolwire.protocol import skills as rules
from toolwire.protocol import types as t
from toolwire.protocol.errors import counted
from toolwire.skills.frontmatter import FrontmatterError, Position, SkillDocument, read_skill_document
from toolwire.util.file_watch import Stamp, stamp_of

#: Bytes that a folder keeps in memory. Files beyond are read again, and checked, when a client asks for them.
KEPT_BYTES: Final = 256 * 1024 * 1024
#: Levels of folders below the one that is loaded.
MAX_DEPTH: Final = 32
#: Files and folders in all that are looked at, so that a wrong path such as "/" ends.
MAX_ENTRIES: Final = 200_000
#: Problems that an error names.
SHOWN_PROBLEMS: Final = 20

# Names that people do not write: caches, backups of editors, leftovers of file managers.
_LEFT_OUT = re.compile(
    r"__pycache__|node_modules|.*\.py[co]|.*~|#.*#|.*\.(?:swp|swo|orig|rej|bak|tmp)|Thumbs\.db|desktop\.ini|Icon\r"
)
# Room in an answer for everything but the contents.
_AROUND: Final = 16 * 1024
_PLAIN_SEGMENT = re.compile(r"[A-Za-z0-9._~-]+")

# The types of the files that skills have. `mimetypes` reads the files of the machine, and two machines differ.
_MIME_TYPES: Final = {
    "bat": "text/plain",
    "bmp": "image/bmp",
    "c": "text/x-c",
    "css": "text/css",
    "csv": "text/csv",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "gif": "image/gif",
    "gz": "application/gzip",
    "html": "text/html",
    "ico": "image/vnd.microsoft.icon",
    "ini": "text/plain",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "js": "text/javascript",
    "json": "application/json",
    "jsonl": "application/jsonl",
    "md": "text/markdown",
    "mjs": "text/javascript",
    "mp3": "audio/mpeg",
    "mp4": "video/mp4",
    "pdf": "application/pdf",
    "png": "image/png",
    "pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    "ps1": "text/plain",
    "py": "text/x-python",
    "rb": "text/x-ruby",
    "sh": "text/x-shellscript",
    "sql": "application/sql",
    "svg": "image/svg+xml",
    "tar": "application/x-tar",
    "toml": "application/toml",
    "ts": "text/x-typescript",
    "tsv": "text/tab-separated-values",
    "ttf": "font/ttf",
    "txt": "text/plain",
    "wav": "audio/wav",
    "webp": "image/webp",
    "woff2": "font/woff2",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "xml": "application/xml",
    "xsd": "application/xml",
    "yaml": "application/yaml",
    "yml": "application/yaml",
    "zip": "application/zip",
}


class SkillProblem(NamedTuple):
    """A reason why a skill cannot be served, and its place."""

    file: str
    message: str
    position: Position | None = None

    def __str__(self) -> str:
        place = "" if self.position is None else f"line {self.position.line}, column {self.position.column}: "
        return f"{self.file}: {place}{self.message}"


class LeftOut(NamedTuple):
    """A file or folder that is not served, and the reason."""

    file: str
    reason: str


class SkillsError(ServerError):
    """A folder of skills that cannot be served. `problems` has all of them."""

    def __init__(self, folder: str, problems: list[SkillProblem]) -> None:
        # The first line has a problem, and the rest are indented: a client shows the first line of an exception that
        # ended the process of its server.
        shown = "\n  ".join(str(problem) for problem in problems[:SHOWN_PROBLEMS])
        more = len(problems) - SHOWN_PROBLEMS
        super().__init__(
            f"{counted(len(problems), 'problem')} in the skills: {shown}"
            + (f"\n  and {more} more" if more > 0 else "")
            + "\n  (strict=False leaves such skills out and serves the rest)"
        )
        self.folder = folder
        self.problems = problems


class SkillFile(Struct, frozen=True, gc=False):
    """A file as it was when its skill was loaded.

    `data` is None for a file that is not kept in memory.
    """

    uri: str
    path: str
    """The path below the folder that was loaded, in the normal form NFC."""
    source: str
    mime_type: str
    digest: str
    size: int
    data: bytes | None
    is_executable: bool

    def read(self) -> bytes:
        """Return the bytes that were hashed.

        Raises `SkillFileChanged` if the file is not kept in memory and has changed on disk.
        """
        if self.data is not None:
            return self.data
        try:
            data = _bytes_of(self.source)
        except OSError:
            data = b""
        if len(data) != self.size or rules.digest_of(data) != self.digest:
            raise SkillFileChanged(f"{self.uri} has changed since its skill was loaded: load the skills again")
        return data


class SkillFileChanged(ServerError):
    """A file on disk has changed since it was hashed, so it is not served."""


class LoadedSkill(Struct, frozen=True):
    """A skill that was read and checked."""

    uri: str
    root: str
    folder: str
    document: SkillDocument
    files: tuple[SkillFile, ...]
    directories: tuple[str, ...]
    """The URIs of its directories: the root first."""

    @property
    def name(self) -> str:
        return str(self.document.frontmatter["name"])

    @property
    def description(self) -> str:
        return str(self.document.frontmatter["description"])

    def entry(self, is_dynamic: bool = False) -> t.Skill:
        """Return the entry of `skills/list`."""
        files = [t.SkillResource(uri=each.uri, digest=each.digest, size=each.size) for each in self.files]
        resources: Any = rules.DYNAMIC if is_dynamic else files
        return t.Skill(uri=self.uri, frontmatter=self.document.frontmatter, resources=resources)


class LoadedFolder(NamedTuple):
    """The skills of a folder, ordered by URI, and what was left out."""

    skills: list[LoadedSkill]
    problems: list[SkillProblem]
    left_out: list[LeftOut]


def load_skills(folder: str, prefix: str = "", *, keep: int = KEPT_BYTES, answer: int | None = None) -> LoadedFolder:
    """Load every skill below a folder.

    A folder without SKILL.md becomes a part of the path of the skills in it.

    `answer` is how many bytes an answer of the server may have: a file that does not fit into one cannot be served.
    """
    loader = _Loader(folder, _segments(prefix), keep, answer)
    if os.path.lexists(f"{folder}/{rules.SKILL_FILE}"):
        raise ServerError(f"{folder} is itself a skill: use server.skill(), or name the folder that holds it")
    return loader.load(())


def load_skill(folder: str, prefix: str = "", *, keep: int = KEPT_BYTES, answer: int | None = None) -> LoadedFolder:
    """Load the skill in a folder, and those nested in it.

    The name of the folder is the name of the skill.
    """
    if not os.path.lexists(f"{folder}/{rules.SKILL_FILE}"):
        raise ServerError(f"{folder} has no {rules.SKILL_FILE}: a skill is a folder with that file")
    name = os.path.basename(os.path.abspath(folder))
    return _Loader(folder, _segments(prefix), keep, answer).load((unicodedata.normalize("NFC", name),))


def watched_files(folder: str) -> Iterator[tuple[str, Stamp]]:
    """Yield the path and the stamp of every file below a folder, to detect changes."""
    for directory, folders, files in os.walk(folder):
        folders[:] = sorted(each for each in folders if _reason_to_leave_out(each) is None)
        for name in sorted(files):
            path = os.path.join(directory, name)
            if (stamp := stamp_of(path)) is not None:
                yield path, stamp


def _segments(prefix: str) -> tuple[str, ...]:
    segments = tuple(prefix.strip("/").split("/")) if prefix.strip("/") else ()
    for segment in segments:
        if segment in ("", ".", "..") or _segment_problem(segment) is not None:
            raise ServerError(f"prefix={prefix!r} is not a path such as acme/billing")
    return segments


def _reason_to_leave_out(name: str) -> str | None:
    if name.startswith("."):
        return "hidden"
    if _LEFT_OUT.fullmatch(name):
        return "made by a tool"
    return None


def _segment_problem(name: str) -> str | None:
    """Say why a name cannot stand in a URI; None if it can."""
    if "\\" in name:
        return "the name has a backslash, which separates folders on Windows: rename it"
    if not name.isprintable():
        return "the name has characters that cannot be printed, or is not UTF-8: rename it"
    return None


def _encoded(segment: str) -> str:
    return segment if _PLAIN_SEGMENT.fullmatch(segment) else rules.encode_path(segment)


class _Draft:
    """A skill while its folder is walked."""

    def __init__(self, folder: str, segments: tuple[str, ...]) -> None:
        self.folder = folder
        self.segments = segments
        self.root = "skill://" + "/".join(map(_encoded, segments))
        self.files: list[SkillFile] = []
        self.directories: list[str] = [self.root]
        self.count = 0
        self.size = 0
        self.problems: list[SkillProblem] = []

    @property
    def is_too_large(self) -> bool:
        return self.count > rules.MAX_FILES or self.size > rules.MAX_BYTES


class _Loader:
    """One walk through a folder."""

    def __init__(self, folder: str, prefix: tuple[str, ...], keep: int, answer: int | None) -> None:
        if not os.path.isdir(folder):
            raise ServerError(f"There is no folder {folder}")
        self._folder = folder
        self._real = os.path.realpath(folder)
        self._prefix = prefix
        self._keep = keep
        self._answer = answer
        self._entries = 0
        self._drafts: list[_Draft] = []
        self._problems: list[SkillProblem] = []
        self._left_out: list[LeftOut] = []

    def load(self, segments: tuple[str, ...]) -> LoadedFolder:
        self._walk(self._folder, segments, (), (self._real,))
        skills: list[LoadedSkill] = []
        problems = list(self._problems)
        for draft in self._drafts:
            loaded = None if draft.problems else self._finish(draft)
            problems += draft.problems
            if loaded is not None:
                skills.append(loaded)
        unique = list(dict.fromkeys(problems))  # A file of a nested skill is a file of the skill around it, too.
        return LoadedFolder(sorted(skills, key=lambda each: each.uri), unique, self._left_out)

    # --- the walk ---

    def _walk(
        self, directory: str, segments: tuple[str, ...], around: tuple[_Draft, ...], above: tuple[str, ...]
    ) -> None:
        try:
            with os.scandir(directory) as found:
                entries = sorted(found, key=lambda each: each.name)
        except OSError as error:
            self._refuse(around, directory, f"the folder cannot be read ({error.strerror})")
            return
        self._entries += len(entries)
        if self._entries > MAX_ENTRIES or len(above) > MAX_DEPTH:
            self._refuse(around, directory, f"more than {MAX_ENTRIES:,} files or {MAX_DEPTH} levels of folders")
            return
        if any(each.name == rules.SKILL_FILE for each in entries):
            draft = _Draft(directory, (*self._prefix, *segments))
            self._drafts.append(draft)
            around = (*around, draft)
        elif (other := next((each for each in entries if each.name.upper() == "SKILL.MD"), None)) is not None:
            self._refuse(around, other.path, f"the name of the file is {rules.SKILL_FILE}, in capitals: rename it")
        names: dict[str, str] = {}
        for entry in entries:
            reason = _reason_to_leave_out(entry.name)
            if reason is not None:
                self._left_out.append(LeftOut(entry.path, reason))
                continue
            name = unicodedata.normalize("NFC", entry.name)
            other_name = names.setdefault(name.casefold(), entry.name)
            if other_name != entry.name:
                self._refuse(
                    around, entry.path, f"{other_name!r} is the same name on macOS or Windows: rename one of the two"
                )
            elif (wrong := _segment_problem(name)) is not None:
                self._refuse(around, entry.path, wrong)
            else:
                self._visit(entry, name, segments, around, above)

    def _visit(
        self,
        entry: os.DirEntry[str],
        name: str,
        segments: tuple[str, ...],
        around: tuple[_Draft, ...],
        above: tuple[str, ...],
    ) -> None:
        try:
            real = os.path.realpath(entry.path) if entry.is_symlink() else ""
            found = entry.stat()
        except OSError as error:
            self._refuse(around, entry.path, f"the file cannot be read ({error.strerror})")
            return
        if real and real != self._real and not real.startswith(self._real + os.sep):
            self._refuse(around, entry.path, "the link leads out of the folder: copy the file instead")
        elif stat.S_ISDIR(found.st_mode):
            real = real or os.path.join(above[-1], entry.name)
            if real in above:
                self._refuse(around, entry.path, "the link leads to a folder above it: remove it")
                return
            inner = (*segments, name)
            for draft in around:
                draft.directories.append("skill://" + "/".join(map(_encoded, (*self._prefix, *inner))))
            self._walk(entry.path, inner, around, (*above, real))
        elif not stat.S_ISREG(found.st_mode):
            self._left_out.append(LeftOut(entry.path, "not a regular file"))
        elif not around:
            self._left_out.append(LeftOut(entry.path, "in no skill"))
        else:
            self._add_file(real or entry.path, (*segments, name), found, around)

    def _add_file(
        self, source: str, segments: tuple[str, ...], found: os.stat_result, around: tuple[_Draft, ...]
    ) -> None:
        for draft in around:
            draft.count += 1
            draft.size += found.st_size
        if all(draft.is_too_large for draft in around):
            return  # The limit is the problem that is reported; further bytes need not be read.
        try:
            data = _bytes_of(source)
        except OSError as error:
            self._refuse(around, source, f"the file cannot be read ({error.strerror})")
            return
        if self._answer is not None and (size := _answer_size(data, self._answer)) > self._answer:
            fix = f"make it smaller, or give the server Limits(result={size + _AROUND})"
            self._refuse(around, source, f"reading it takes {size:,} bytes, and an answer has {self._answer:,}: {fix}")
            return
        name = segments[-1]
        is_kept = len(data) <= self._keep or name == rules.SKILL_FILE
        if is_kept:
            self._keep -= len(data)
        file = SkillFile(
            uri="skill://" + "/".join(map(_encoded, (*self._prefix, *segments))),
            path="/".join(segments),
            source=source,
            mime_type=mime_type_of(name) or _type_of_unknown(data),
            digest=rules.digest_of(data),
            size=len(data),
            data=data if is_kept else None,
            is_executable=bool(found.st_mode & 0o111),
        )
        for draft in around:
            draft.files.append(file)

    def _refuse(self, around: tuple[_Draft, ...], file: str, message: str) -> None:
        """Record a problem for every skill that contains the file, or for the folder."""
        for problems in [draft.problems for draft in around] or [self._problems]:
            problems.append(SkillProblem(file, message))

    # --- the checks of a whole skill ---

    def _finish(self, draft: _Draft) -> LoadedSkill | None:
        manifest = os.path.join(draft.folder, rules.SKILL_FILE)
        if draft.count > rules.MAX_FILES:
            found = f"the skill has {draft.count:,} files, and hosts take {rules.MAX_FILES}: move some away"
            draft.problems.append(SkillProblem(draft.folder, found))
        if draft.size > rules.MAX_BYTES:
            found = f"the files have {draft.size:,} bytes, and hosts take {rules.MAX_BYTES:,} (16 MiB): move some away"
            draft.problems.append(SkillProblem(draft.folder, found))
        if draft.problems:
            return None
        uri = f"{draft.root}/{rules.SKILL_FILE}"
        own = next((file for file in draft.files if file.uri == uri), None)
        if own is None:
            draft.problems.append(SkillProblem(manifest, "it is not a regular file"))
            return None
        try:
            document = read_skill_document(own.read())
        except FrontmatterError as error:
            place = Position(error.line, error.column)
            draft.problems.append(SkillProblem(manifest, f"{error.problem}: {error.advice}", place))
            return None
        files = tuple(sorted(draft.files, key=lambda each: each.uri))
        loaded = LoadedSkill(uri, draft.root, draft.folder, document, files, tuple(draft.directories))
        draft.problems += [
            SkillProblem(manifest, _advised(fault, document), _place(fault, document))
            for fault in rules.faults_of(loaded.entry())
        ]
        return None if draft.problems else loaded


def _advised(fault: rules.SkillRejected, document: SkillDocument) -> str:
    name = document.frontmatter.get("name")
    if fault.reason == "name" and "name" not in document.frontmatter:
        return "the frontmatter has no name: write name: and the name of the folder"
    if fault.reason == "name" and isinstance(name, str) and rules.is_name(name):
        return f"the name is {name}, and the folder is {fault.expected}: rename one of the two"
    description = document.frontmatter.get("description")
    if fault.reason == "frontmatter" and not isinstance(description, str | None):
        return f"the description is {rules.shown(description)}, which is not a text: put it in quotes"
    if fault.reason == "frontmatter":
        return "the frontmatter has no description: write description: and when to use the skill"
    return str(fault)


def _place(fault: rules.SkillRejected, document: SkillDocument) -> Position | None:
    key = {"name": "name", "frontmatter": "description"}.get(fault.reason)
    return None if key is None else document.positions.get(key, Position(1, 1))


def _bytes_of(path: str) -> bytes:
    """Read a file, but no more than one byte beyond what a skill may have."""
    # The file may have become a pipe or a link since it was looked at: opening must neither block nor follow it.
    if not hasattr(os, "O_NOFOLLOW") and os.path.islink(path):  # Windows.
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    flags = [getattr(os, name, 0) for name in ("O_NONBLOCK", "O_NOFOLLOW", "O_BINARY")]
    descriptor = os.open(path, os.O_RDONLY | sum(flags))
    try:
        # Read by its size: a buffer for the largest file would leave each small one in memory of its own pages.
        wanted = min(os.fstat(descriptor).st_size, rules.MAX_BYTES) + 1
        data = os.read(descriptor, wanted)
        while len(data) <= rules.MAX_BYTES and (more := os.read(descriptor, max(wanted - len(data), 4096))):
            data += more
        return data
    finally:
        os.close(descriptor)


def _answer_size(data: bytes, most: int) -> int:
    """Return how many bytes the answer to a read has; 0 if it surely fits."""
    if len(data) * 6 + _AROUND <= most:  # A control character is six characters in JSON.
        return 0
    try:
        return len(msgspec.json.encode(data.decode("utf-8"))) + _AROUND
    except UnicodeDecodeError:
        return (len(data) + 2) // 3 * 4 + _AROUND


def mime_type_of(name: str) -> str | None:
    """Return the type of a file by its name; None for an unknown one."""
    return _MIME_TYPES.get(name.rpartition(".")[2].lower()) if "." in name else None


def _type_of_unknown(data: bytes) -> str:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return "application/octet-stream"
    return "application/octet-stream" if b"\x00" in data else "text/plain"

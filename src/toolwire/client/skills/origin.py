"""The skills of one server, as a client sees them: listed, fetched, approved, loaded and read."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Final, Protocol, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from toolwire.client.listing import ListBounds
from toolwire.client.pins import Pins
from toolwire.client.requests import RequestSender
from toolwire.client.skill_approval import ApproveSkill, SkillRequest, require_approval
from toolwire.client.skills import verified_read
from toolwire.client.skills.loaded import ListedSkill, LoadedSkill, SkillFile
from toolwire.lazy_parts import load_part
from toolwire.protocol import skills as rules
from toolwire.protocol import types as t
from toolwire.protocol.errors import NotSupported, ToolwireError
from toolwire.protocol.skills import SkillRejected, shown
from toolwire.protocol.types import SKILLS_EXTENSION
from toolwire.util.expiring import Expiring
from toolwire.wire.deadlines import CallClock

T = TypeVar("T")

log: logging.Logger = logging.getLogger("toolwire.skills")

#: The bytes of the entries of one listing.
MAX_LISTING_BYTES: Final = 64 * 1024 * 1024
#: The bytes of verified files that are kept, so that a file is fetched once.
MAX_KEPT_BYTES: Final = 16 * 1024 * 1024
#: The bytes of files that one client fetches from one server in all.
MAX_FETCHED_BYTES: Final = 1024 * 1024 * 1024
#: No listing is kept longer than an hour, whatever the server says.
MAX_FRESH_SECONDS: Final = 3600.0
_MAX_LATEST: Final = 50_000
_MOST_WARNINGS: Final = 20
# What a kept file takes besides its bytes and its URI.
_AROUND_FILE: Final = 500


class Connection(Protocol):
    """The client of the server."""

    @property
    def capabilities(self) -> dict[str, Any]: ...

    @property
    def _sender(self) -> RequestSender: ...

    async def request(
        self,
        method: str,
        params: Any,
        *,
        returns: type[T],
        extension: str | None,
        repeatable: bool,
        timeout: float | None,
    ) -> T: ...


class RefusedSkill(Struct, frozen=True):
    """An entry of a listing that breaks a rule, and is not offered. `uri` is empty where the entry has none."""

    origin: str
    uri: str
    error: SkillRejected


class SkillList(list[ListedSkill]):
    """The skills that a client may load, and those that it refused."""

    def __init__(self, skills: Iterable[ListedSkill] = (), refused: Iterable[RefusedSkill] = ()) -> None:
        super().__init__(skills)
        self.refused: list[RefusedSkill] = [*refused]

    def copy(self) -> SkillList:
        return SkillList(self, self.refused)


class _SkillPage(t.CacheableResult, kw_only=True):
    """One page of `skills/list`. An entry that is none must not take the others away, so each is read by itself."""

    skills: list[Raw]
    next_cursor: str | UnsetType | None = UNSET


class _SkillAnswer(t.CacheableResult, kw_only=True):
    skill: Raw


class _Identity(Struct):
    uri: str = ""


class _Found:
    """The entries of a listing, each either usable or refused. A URI that is listed twice is refused both times."""

    def __init__(self, origin: str) -> None:
        self._origin = origin
        self._listed: set[str] = set()
        self.entries: dict[str, t.Skill] = {}
        self.refused: list[RefusedSkill] = []
        self.ambiguous: set[str] = set()
        """URIs that are listed twice."""

    def take(self, raw: Raw) -> None:
        uri = _uri_of(raw)
        try:
            entry = rules.read_entry(raw)
            if uri in self._listed:
                # Which of them is meant? Neither: a second entry must not stand in for the first.
                self.ambiguous.add(uri)
                raise SkillRejected("entry", f"{shown(uri)} is listed twice", None, uri)
            self.entries[uri] = entry
        except SkillRejected as error:
            self.entries.pop(uri, None)
            self.refused.append(RefusedSkill(self._origin, uri, error))
        self._listed.add(uri)


class OriginSkills:
    """The skills of one server. Names, approvals and files of other servers have nothing to do with them."""

    def __init__(
        self, client: Connection, label: str, address: str, approve: ApproveSkill | None, pins: Pins | None
    ) -> None:
        self.label: str = label
        """This program's name for the server."""
        self.approve: ApproveSkill | None = approve
        self._client = client
        # SEP-2640, skill URIs: the identity of the server is the program's own name for it. The address belongs to it,
        # because another program may use the name for another server in the same file.
        self._identity = address if label == address else f"{label} {address}"
        self._pins = Pins() if pins is None else pins
        self._asking = asyncio.Lock()
        # The fingerprint of every skill as the server showed it last. The digests of so many could fill the memory.
        self._latest: Expiring[str, str | None] = Expiring(_MAX_LATEST)
        self._listing: SkillList | None = None
        self._ambiguous: frozenset[str] = frozenset()
        self._names: Counter[str] = Counter()
        self._fresh_until = 0.0
        self._announced = 0
        self._kept: Expiring[tuple[str, str], SkillFile] = Expiring(max_weight=MAX_KEPT_BYTES, weigh=_kept_size)
        self._fetched_bytes = 0

    def _clock(self, timeout: float | None) -> CallClock:
        """Return one time limit for several requests; `timeout` is None for that of the client."""
        return self._client._sender.start_clock(timeout)

    # --- entries ---

    async def listing(self, timeout: float | None = None) -> SkillList:
        """List the skills; a listing that the server calls fresh is not asked for again. No file is read."""
        if self._listing is not None and time.monotonic() < self._fresh_until:
            return self._listing.copy()
        found = _Found(self.label)
        seconds = MAX_FRESH_SECONDS
        announced = self._announced
        async for page in self._pages(timeout):
            seconds = min(seconds, 0.0 if page.ttl_ms is UNSET else page.ttl_ms / 1000)
            for raw in page.skills:
                found.take(raw)
        self._see(found.entries.values())
        self._ambiguous = frozenset(found.ambiguous)
        self._names = Counter(entry.frontmatter["name"] for entry in found.entries.values())
        self._listing = SkillList([self._offer(found.entries[uri]) for uri in sorted(found.entries)], found.refused)
        # A change that was announced between two pages is missing in the first of them.
        self._fresh_until = time.monotonic() + seconds if announced == self._announced else 0.0
        for each in found.refused[:_MOST_WARNINGS]:
            log.warning("a skill of %s is refused: %s", self.label, each.error)
        return self._listing.copy()

    async def get(self, uri: str, timeout: float | None = None) -> ListedSkill:
        """Ask for the entry of one skill, which need not be listed. The last listing must not have it twice."""
        rules.root_of(uri)
        if uri in self._ambiguous:
            raise SkillRejected("entry", f"{shown(uri)} is listed twice", None, uri)
        answer = await self._ask("skills/get", {"uri": uri}, _SkillAnswer, timeout)
        entry = rules.read_entry(answer.skill)
        if entry.uri != uri:
            message = f"The server answered for {shown(entry.uri)} when it was asked for {shown(uri)}"
            raise SkillRejected("entry", message, uri, entry.uri)
        self._see([entry])
        return self._offer(entry)

    def forget(self) -> None:
        """Ask the server again at the next listing, because it announced a change."""
        self._fresh_until = 0.0
        self._announced += 1

    def differs_from_latest(self, entry: t.Skill) -> bool:
        return entry.uri in self._latest and self._latest.get(entry.uri) != rules.fingerprint(entry)

    async def _pages(self, timeout: float | None) -> AsyncIterator[_SkillPage]:
        bounds = ListBounds("skills/list", max_bytes=MAX_LISTING_BYTES)
        params: dict[str, str] = {}
        clock = self._clock(timeout)
        while True:
            page = await self._ask("skills/list", params, _SkillPage, clock.rest("skills/list"))
            bounds.add_bytes(sum(memoryview(raw).nbytes for raw in page.skills))
            bounds.count(len(page.skills))
            yield page
            if page.next_cursor is UNSET or page.next_cursor is None:
                return
            if bounds.is_repeated(page.next_cursor):
                log.warning("%s repeated a cursor; the listing of skills ends here", self.label)
                return
            params = {"cursor": page.next_cursor}

    def _offer(self, entry: t.Skill) -> ListedSkill:
        name = entry.frontmatter["name"]
        label, root = name, rules.root_of(entry.uri)
        if self._names[name] > 1:
            # SEP-2640, names: two skills of one name are told apart by their paths, and by other schemes than skill:.
            label = root.removeprefix("skill://")
        return ListedSkill(self.label, entry, label)

    def _see(self, entries: Iterable[t.Skill]) -> None:
        seen: dict[str, Mapping[str, str]] = {}
        for entry in entries:
            seen[entry.uri] = _digests(entry)
            self._latest.put(entry.uri, rules.fingerprint(entry))
        self._pins.skills_seen(self._identity, seen)

    # --- loading ---

    async def load(
        self, listed: ListedSkill, *, dynamic: bool, timeout: float | None, is_fetched: bool = False
    ) -> LoadedSkill:
        """Have a skill approved, read its SKILL.md, verify it. Only then it can be used.

        Bytes that contradict the entry of a listing may be newer than the entry: a listing is used for as long as the
        server calls it fresh. So the entry is fetched once more, and a changed one is approved and verified anew.
        `is_fetched`: the entry was fetched for this call.
        """
        clock = self._clock(timeout)
        try:
            return await self._load(listed, dynamic, clock)
        except SkillRejected as error:
            changed = None if is_fetched else await self._changed_entry(listed.entry, error, clock)
            if changed is None:
                raise
        return await self._load(changed, dynamic, clock)

    async def explain(self, entry: t.Skill, error: SkillRejected, timeout: float | None) -> SkillRejected:
        """Return the refusal of a held skill's file. Its text says if the skill changed."""
        if await self._changed_entry(entry, error, self._clock(timeout)) is None:
            return error
        message = f"{error}: the server has changed the skill since it was loaded, so load it again"
        return SkillRejected(error.reason, message, error.expected, error.found)

    async def _changed_entry(self, entry: t.Skill, error: SkillRejected, clock: CallClock) -> ListedSkill | None:
        """Fetch an entry anew after a file that contradicts it; None if it is unchanged."""
        if error.reason not in ("digest", "size") or entry.resources == rules.DYNAMIC:
            return None
        try:
            found = await self.get(entry.uri, clock.rest("skills/get"))
        except ToolwireError:  # The refusal stands, whatever the server answers now.
            return None
        if rules.fingerprint(found.entry) == rules.fingerprint(entry):
            return None
        self.forget()  # The listing has the old entry.
        return found

    async def _load(self, listed: ListedSkill, dynamic: bool, clock: CallClock) -> LoadedSkill:
        entry = listed.entry
        if listed.dynamic and not dynamic:
            message = (
                f"The skill {shown(listed.name)} of {self.label} has no digests, so that it may change with every "
                "read: load it with dynamic=True if that is acceptable"
            )
            raise SkillRejected("dynamic", message, "digests", rules.DYNAMIC)
        with clock.leave_out():
            await self._approved(listed)
        timeout = clock.rest("resources/read")
        if listed.dynamic:
            document = await self.read_dynamic(entry.uri, rules.SKILL_FILE, rules.MAX_BYTES, timeout)
        else:
            document = await self.read_file(listed.files[rules.SKILL_FILE], rules.SKILL_FILE, timeout)
        # YAML is not read by this layer: the package of skills has the reader, and its library is an extra.
        verified_body = load_part("verified_body")
        return LoadedSkill(self, listed, document, verified_body(entry, document.data))

    async def _approved(self, listed: ListedSkill) -> None:
        if self.approve is None:
            return
        # One question at a time, so that two loads of one skill ask once.
        async with self._asking:
            digests = _digests(listed.entry)
            pin = self._pins.skill(self._identity, listed.uri)
            if pin is not None and not pin.void and not listed.dynamic and pin.digests == digests:
                return
            before = None if pin is None or listed.dynamic else pin.digests
            request = SkillRequest(self.label, listed.entry, before, self._enclosing(listed.uri), listed.findings)
            await require_approval(self.approve, request)
            if not listed.dynamic:
                self._pins.approve_skill(self._identity, listed.uri, digests)

    def _enclosing(self, uri: str) -> tuple[str, ...]:
        """Return the skills that a skill is nested in, as far as the server has shown them."""
        return tuple(
            sorted(other for other in self._latest if other != uri and uri.startswith(f"{rules.root_of(other)}/"))
        )

    # --- files ---

    async def read_file(self, file: t.SkillResource, path: str, timeout: float | None) -> SkillFile:
        """Read a listed file. It is kept with the digest of its bytes, so that it is fetched once."""
        kept = self._kept.get((file.uri, file.digest))
        if kept is None or len(kept.data) != file.size:
            contents = await self._contents(file.uri, timeout)
            data = verified_read.listed_bytes(contents, file)
            kept = SkillFile(self.label, file.uri, path, data, verified_read.mime_type_of(contents), verified=True)
            self._keep(file.digest, kept)
        return kept

    async def read_dynamic(self, uri: str, path: str, limit: int, timeout: float | None) -> SkillFile:
        contents = await self._contents(uri, timeout)
        data = verified_read.dynamic_bytes(contents, limit)
        return SkillFile(self.label, uri, path, data, verified_read.mime_type_of(contents), verified=False)

    async def read_directory(self, root: str, path: str, timeout: float | None) -> list[str]:
        """Ask the server for the children of a directory of a dynamic skill."""
        if not self._reads_directories:
            # SEP-2640, capability negotiation: clients must not call it then.
            raise NotSupported(f"{self.label} did not declare directoryRead, so that its directories cannot be listed")
        directory = f"{root}/{rules.encode_path(path)}" if path else root
        bounds = ListBounds("resources/directory/read", max_bytes=MAX_LISTING_BYTES)
        params = {"uri": directory}
        found: set[str] = set()
        clock, method = self._clock(timeout), "resources/directory/read"
        while True:
            page = await self._ask(method, params, t.ReadResourceDirectoryResult, clock.rest(method))
            bounds.add_bytes(sum(len(each.uri) for each in page.resources))
            bounds.count(len(page.resources))
            for each in page.resources:
                child = rules.path_of(root, each.uri)
                if child is not None and child.rpartition("/")[0] == path:
                    found.add(f"{child}/" if each.mime_type == "inode/directory" else child)
            if page.next_cursor is UNSET or page.next_cursor is None or bounds.is_repeated(page.next_cursor):
                return sorted(found)
            params = {"uri": directory, "cursor": page.next_cursor}

    @property
    def _reads_directories(self) -> bool:
        settings = self._client.capabilities.get("extensions", {}).get(SKILLS_EXTENSION)
        return isinstance(settings, Mapping) and settings.get("directoryRead") is True

    async def _contents(self, uri: str, timeout: float | None) -> verified_read.FileContents:
        result = await self._ask("resources/read", {"uri": uri}, verified_read.FileResult, timeout)
        contents = verified_read.contents_of(result, uri)
        self._fetched_bytes += len(contents.text or "") + len(contents.blob or "")
        if self._fetched_bytes > MAX_FETCHED_BYTES:
            message = f"More than {MAX_FETCHED_BYTES} bytes of skills were read from {self.label}"
            raise SkillRejected("limit", message, MAX_FETCHED_BYTES, self._fetched_bytes)
        return contents

    def _keep(self, digest: str, file: SkillFile) -> None:
        if (file.uri, digest) not in self._kept:  # Otherwise another read of the same file was faster.
            self._kept.put((file.uri, digest), file)

    async def _ask(self, method: str, params: Mapping[str, Any], returns: type[T], timeout: float | None) -> T:
        return await self._client.request(
            method, params, returns=returns, extension=SKILLS_EXTENSION, repeatable=True, timeout=timeout
        )


def _kept_size(file: SkillFile) -> int:
    """Return the bytes that a file takes in memory: a server may have any number of empty ones."""
    return len(file.data) + len(file.uri) + _AROUND_FILE


def _digests(entry: t.Skill) -> dict[str, str]:
    """Return the digest of each file; nothing for a dynamic skill, which equals no set of files."""
    return {} if entry.resources == rules.DYNAMIC else {file.uri: file.digest for file in entry.resources}


def _uri_of(raw: Raw) -> str:
    try:
        return t.decode(_Identity, raw).uri
    except (msgspec.MsgspecError, RecursionError):
        return ""

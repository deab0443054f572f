"""Errors of Redis, in texts that say what to do and hold no secret."""

from __future__ import annotations

import re
from typing import Any, Final

from toolwire.protocol.errors import ToolwireError, counted
from toolwire.stores.memory import StoreFailed, StoreFull
from toolwire.stores.redis_address import Node, RedisAddress
from toolwire.stores.redis_eviction import EvictingRedis

#: The words with which Redis begins an error, and what each means. A script that gets one of the first kind was refused
#: before it changed anything: the same server later, or another server, may take it.
_REFUSALS: Final = {
    "READONLY": "it is a replica, which takes no changes: give the address of the primary",
    "UNBLOCKED": "it has become a replica, which takes no changes",
    "LOADING": "it still reads its data from disk",
    "MASTERDOWN": "it is a replica that has lost its primary",
    "NOREPLICAS": "it takes no changes, because too few of its replicas are connected",
    "CLUSTERDOWN": "it is a cluster in which some slots have no node now",
    "MOVED": "it is a cluster, and the node that should have the keys of the store sends them on",
    "ASK": "it is a cluster that is moving the keys of the store to another node",
    "TRYAGAIN": "it is a cluster that is moving the keys of the store to another node",
}
_OTHERS: Final = {
    "MISCONF": "it takes no changes, because it cannot save its data: its log says why",
    "BUSY": "it is busy with a script of another program",
    "CROSSSLOT": "it is a cluster, and a key of the store is in another slot than the others",
}
_RIGHTS_PAGE: Final = "the rights in docs/reference/stores.md (A user with the least rights)"
#: Redis 6 puts the place in the script before the word.
_CODE: Final = re.compile(rf"(?:^|.*?: ?-?)({'|'.join((*_REFUSALS, *_OTHERS))})\b", re.DOTALL)


class AnswerLost(Exception):
    """A command was sent, and no reply to it came."""


class UnknownService(Exception):
    """No Sentinel knows a primary by the name in the address."""


class MissingRights(Exception):
    """The user lacks rights for commands that the store needs; the text names them."""


#: Reasons of our own not to use a server that answers. They last until the operator changes something.
UNUSABLE: Final = (UnknownService, MissingRights, EvictingRedis)


class RedisErrors:
    """The exceptions of the client library `redis`, translated for one store."""

    def __init__(self, redis: Any, address: RedisAddress, prefix: str, timeout: float) -> None:
        kinds = redis.exceptions
        self.base: type[Exception] = redis.RedisError
        self.response: type[Exception] = redis.ResponseError
        self.timeout: tuple[type[Exception], ...] = (kinds.TimeoutError, TimeoutError)
        self.unknown_script: type[Exception] = kinds.NoScriptError
        self.connection: type[Exception] = kinds.ConnectionError
        self.no_permission: type[Exception] = kinds.NoPermissionError
        # The library takes the word away from the text of the errors that it has a class for.
        self._codes: tuple[tuple[type[Exception], str], ...] = (
            (kinds.ReadOnlyError, "READONLY"),
            (kinds.BusyLoadingError, "LOADING"),
            (kinds.MasterDownError, "MASTERDOWN"),
            (kinds.ClusterDownError, "CLUSTERDOWN"),
            (kinds.MovedError, "MOVED"),
            (kinds.AskError, "ASK"),
            (kinds.TryAgainError, "TRYAGAIN"),
            (kinds.ClusterCrossSlotError, "CROSSSLOT"),
        )
        self._kinds = kinds
        self._address = address
        self._prefix = prefix
        self._seconds = timeout

    @property
    def store(self) -> str:
        """The name of the store, for people."""
        return self._address.shown

    def failure(self, error: BaseException) -> ToolwireError:
        """Return the error that the caller of the store gets."""
        error = self._root(error)
        if isinstance(error, self._kinds.OutOfMemoryError) or "OOM command" in str(error):
            return StoreFull("The Redis of the store has no memory left: raise its maxmemory.")
        return self.failed(self.reason(error), temporary=self.is_temporary(error))

    def failed(self, reason: str, *, temporary: bool = False) -> StoreFailed:
        failed = StoreFailed(f"The store {self.store} cannot be used: {reason}")
        failed.temporary = temporary
        # The error itself is left out: its text may hold secrets, and the context goes to logs.
        failed.__suppress_context__ = True
        return failed

    def reason(self, error: BaseException) -> str:
        kinds = self._kinds
        error = self._root(error)
        text = self._address.without_secrets(str(error))
        if isinstance(error, AnswerLost):
            return "the connection was lost before it answered, so that nobody knows whether the change was made"
        if isinstance(error, UnknownService):
            return f"its Sentinels know no primary with the name {self._address.service!r}"
        if isinstance(error, EvictingRedis):
            return (
                f"it evicts keys when its memory is full (maxmemory-policy {error}), which loses tasks and sessions: "
                "set maxmemory-policy noeviction, or add ?evicts=allow to its address"
            )
        if isinstance(error, MissingRights):
            return f"the user of its address may not run {error}: give it {_RIGHTS_PAGE}"
        if isinstance(error, kinds.AuthenticationError):
            return "it does not accept the user name and password of its address"
        if isinstance(error, self.timeout):
            return f"it did not answer within {counted(self._seconds, 'second')}"
        if isinstance(error, kinds.InvalidResponse):
            return "what answers there is not Redis"
        if isinstance(error, kinds.NoPermissionError) or "ACL failure" in text or "NOPERM" in text:
            return f"the user of its address may not do what the store needs ({text}): give it {_RIGHTS_PAGE}"
        code = self._code(error)
        if code is not None:
            return _REFUSALS.get(code) or _OTHERS[code]
        if isinstance(error, OSError | kinds.ConnectionError):
            return f"it is not reached, so see whether it runs and its address is right ({text})"
        if "WRONGTYPE" in text or isinstance(error, UnicodeDecodeError):
            return f"another program uses the prefix {self._prefix!r} there: choose another one"
        return text or type(error).__name__

    def is_refusal(self, error: BaseException) -> bool:
        """Say whether Redis refused a script before it changed anything, because of the state that it is in."""
        return self._code(error) in _REFUSALS

    def moved_to(self, error: BaseException, node: Node | None) -> Node | None:
        """Return the node of a cluster that has the keys, where `node` says that it is another one."""
        error = self._root(error)
        if self._code(error) != "MOVED":
            return None
        host, _, port = str(error).rpartition(" ")[2].rpartition(":")
        if not port.isdigit():
            return None
        # Without a host it is the one that was asked.
        return (host or (node[0] if node else "")), int(port)

    def is_temporary(self, error: BaseException) -> bool:
        """Say whether waiting may help."""
        kinds = self._kinds
        error = self._root(error)
        if isinstance(error, kinds.AuthenticationError):
            return False
        return self.is_refusal(error) or isinstance(error, (AnswerLost, OSError, kinds.ConnectionError, *self.timeout))

    def _code(self, error: BaseException) -> str | None:
        error = self._root(error)
        code = next((code for kind, code in self._codes if isinstance(error, kind)), None)
        if code is not None or not isinstance(error, self.response):
            return code
        found = _CODE.match(str(error))
        return found[1] if found else None

    def _root(self, error: BaseException) -> BaseException:
        """Return the cause, because the library wraps errors that happen while it connects."""
        while isinstance(error.__cause__, self.base):
            error = error.__cause__
        return error

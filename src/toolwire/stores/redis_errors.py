"""Errors of Redis, in texts that say what to do and hold no secret."""

from __future__ import annotations

from typing import Any

from toolwire.protocol.errors import ToolwireError, counted
from toolwire.stores.memory import StoreFailed, StoreFull
from toolwire.stores.redis_address import RedisAddress


class AnswerLost(Exception):
    """A command was sent, and no reply to it came."""


class RedisErrors:
    """The exceptions of the client library `redis`, translated for one store."""

    def __init__(self, redis: Any, address: RedisAddress, prefix: str, timeout: float) -> None:
        self.base: type[Exception] = redis.RedisError
        self.response: type[Exception] = redis.ResponseError
        self.timeout: type[Exception] = redis.exceptions.TimeoutError
        self.unknown_script: type[Exception] = redis.exceptions.NoScriptError
        self._kinds = redis.exceptions
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
        failed = StoreFailed(f"The store {self.store} cannot be used: {self.reason(error)}")
        # The error itself is left out: its text may hold secrets, and the context goes to logs.
        failed.__suppress_context__ = True
        return failed

    def reason(self, error: BaseException) -> str:
        kinds = self._kinds
        error = self._root(error)
        text = self._address.without_secrets(str(error))
        if isinstance(error, AnswerLost):
            return "the connection was lost before it answered, so that nobody knows whether the change was made"
        if isinstance(error, kinds.AuthenticationError):
            return "it does not accept the user name and password of its address"
        if isinstance(error, kinds.TimeoutError | TimeoutError):
            return f"it did not answer within {counted(self._seconds, 'second')}"
        if isinstance(error, kinds.InvalidResponse):
            return "what answers there is not Redis"
        if isinstance(error, kinds.ReadOnlyError):
            return "it is a replica, which takes no changes: give the address of the primary"
        if isinstance(error, kinds.NoPermissionError):
            return f"the user of its address may not do what the store needs ({text})"
        if isinstance(error, OSError | kinds.ConnectionError):
            return f"it is not reached, so see whether it runs and its address is right ({text})"
        if text.startswith("MOVED "):
            return "it is a cluster, and the store needs one primary that holds all of its keys"
        if "WRONGTYPE" in text or isinstance(error, UnicodeDecodeError):
            return f"another program uses the prefix {self._prefix!r} there: choose another one"
        return text or type(error).__name__

    def is_temporary(self, error: BaseException) -> bool:
        """Say whether waiting may help."""
        kinds = self._kinds
        error = self._root(error)
        if isinstance(error, kinds.AuthenticationError):
            return False
        return isinstance(error, OSError | kinds.ConnectionError | kinds.TimeoutError)

    def _root(self, error: BaseException) -> BaseException:
        """Return the cause, because the library wraps errors that happen while it connects."""
        while isinstance(error.__cause__, self.base):
            error = error.__cause__
        return error

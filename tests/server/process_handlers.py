"""Handlers for processes of their own; a fresh interpreter loads this file, so it imports nothing of the tests."""

from __future__ import annotations

import os
import random
import threading
from typing import Any

from toolwire import Context, ToolError


def compute(base: int, ctx: Context) -> dict[str, Any]:
    ctx.progress(1, 2, "half")  # type: ignore[unused-coroutine]
    ctx.log("warning", {"at": base})  # type: ignore[unused-coroutine]
    return {"pid": os.getpid(), "base": base, "meta": ctx.meta.get("example.org/a"), "who": ctx.principal}


def fail(how: str) -> str:
    if how == "tool":
        raise ToolError("No such account")
    raise RuntimeError("the password is hunter2")


def hang() -> None:
    threading.Event().wait()


def asks(how: str, ctx: Context) -> None:
    _call(ctx, how)


def _call(ctx: Context, method: str) -> None:
    getattr(ctx, method)("Sure?")


def draw(values: list[int], ctx: Context) -> int:
    ctx.progress(1)  # type: ignore[unused-coroutine]
    return random.sample(values, 1)[0]


async def asynchronous() -> None: ...

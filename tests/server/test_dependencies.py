"""Dependencies: made once a request, in order, cleaned up in reverse, told of failures."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Annotated, Any

import pytest
from tests.cases import cases

from toolwire.protocol.errors import ServerError
from toolwire.server import dependencies
from toolwire.server.binding import Binding, bind
from toolwire.server.dependencies import Depends


class Context:
    pass


def binding(function: Callable[..., Any]) -> Binding:
    return bind(function, is_context=lambda annotation: annotation is Context)


async def in_thread(function: Callable[..., Any], *args: Any) -> Any:
    return await asyncio.to_thread(function, *args)


async def run(bound: Binding, context: Any = None, arguments: bytes = b"{}") -> Any:
    values = bound.arguments(arguments)
    async with AsyncExitStack() as stack:
        plan = bound.call_plan.dependencies
        made = await dependencies.resolve(plan, context, stack, in_thread) if plan else None
        result = bound.call(values, context, made)
        return await result if bound.is_async else result


async def test_every_kind_of_function_makes_a_value() -> None:
    log: list[str] = []

    def plain() -> str:
        return "plain"

    async def coroutine() -> str:
        return "coroutine"

    def generator() -> Iterator[str]:
        yield "generator"
        log.append("generator closed")

    async def async_generator() -> AsyncIterator[str]:
        yield "async generator"
        log.append("async generator closed")

    @contextmanager
    def manager() -> Iterator[str]:
        yield "manager"
        log.append("manager closed")

    @asynccontextmanager
    async def async_manager() -> AsyncIterator[str]:
        yield "async manager"
        log.append("async manager closed")

    class Settings:
        pass

    def tool(
        a: str = Depends(plain),
        b: str = Depends(coroutine),
        c: str = Depends(generator),
        d: str = Depends(async_generator),
        e: str = Depends(manager),
        f: str = Depends(async_manager),
        g: Any = Depends(Settings),
    ) -> Any:
        log.append("called")
        return [a, b, c, d, e, f, type(g).__name__]

    result = await run(binding(tool))
    assert result == ["plain", "coroutine", "generator", "async generator", "manager", "async manager", "Settings"]
    assert log == ["called", "async manager closed", "manager closed", "async generator closed", "generator closed"]


async def test_dependencies_are_not_arguments() -> None:
    class Db:
        """Not JSON at all."""

    def tool(table: str, db: Annotated[Db, Depends(Db)], other: Db = Depends(Db)) -> str:
        assert isinstance(db, Db)
        assert db is other
        return table

    bound = binding(tool)
    assert list(bound.input_schema["properties"]) == ["table"]
    assert list(bound.dependencies) == ["db", "other"]
    assert await run(bound, arguments=b'{"table": "t"}') == "t"


async def test_a_caller_cannot_fill_a_dependency() -> None:
    def tool(db: str = Depends(lambda: "real")) -> str:
        return db

    with pytest.raises(Exception, match='Unknown argument "db"'):
        binding(tool).arguments(b'{"db": "mine"}')


async def test_a_dependency_runs_once_unless_told_otherwise() -> None:
    calls: list[int] = []

    def count() -> int:
        calls.append(1)
        return len(calls)

    def nested(n: int = Depends(count)) -> int:
        return n

    def tool(
        a: int = Depends(count),
        b: int = Depends(nested),
        c: int = Depends(count, use_cache=False),
    ) -> list[int]:
        return [a, b, c]

    bound = binding(tool)
    assert await run(bound) == [1, 1, 2]
    assert await run(bound) == [3, 3, 4]


async def test_nested_dependencies_close_from_the_outside_in() -> None:
    log: list[str] = []

    async def pool() -> AsyncIterator[str]:
        log.append("pool")
        yield "pool"
        log.append("pool closed")

    async def connection(pool: Annotated[str, Depends(pool)]) -> AsyncIterator[str]:
        log.append("connection")
        yield f"{pool} connection"
        log.append("connection closed")

    async def tool(connection: str = Depends(connection)) -> str:
        return connection

    assert await run(binding(tool)) == "pool connection"
    assert log == ["pool", "connection", "connection closed", "pool closed"]


async def test_a_dependency_may_take_the_context() -> None:
    async def who(ctx: Context) -> Context:
        return ctx

    async def unannotated(ctx) -> Any:  # type: ignore[no-untyped-def]
        return ctx

    def tool(a: Any = Depends(who), b: Any = Depends(unannotated)) -> bool:
        return a is b

    assert await run(binding(tool), Context()) is True


@cases("failure", [ValueError("no"), asyncio.CancelledError(), KeyboardInterrupt()], ids=repr)
async def test_a_failure_is_thrown_into_generators(failure: BaseException) -> None:
    seen: list[Any] = []

    async def transaction() -> AsyncIterator[str]:
        try:
            yield "open"
        except BaseException as error:
            seen.append(("async", error))
            raise

    def file() -> Iterator[str]:
        try:
            yield "open"
        except BaseException as error:
            seen.append(("sync", error))
            raise

    async def tool(a: str = Depends(transaction), b: str = Depends(file)) -> None:
        raise failure

    with pytest.raises(type(failure)):
        await run(binding(tool))
    assert seen == [("sync", failure), ("async", failure)]


async def test_clean_up_cannot_turn_a_failure_into_a_success() -> None:
    async def swallows() -> AsyncIterator[int]:
        try:
            yield 1
        except ValueError:
            pass

    async def tool(a: int = Depends(swallows)) -> None:
        raise ValueError("kept")

    with pytest.raises(ValueError, match="kept"):
        await run(binding(tool))


async def test_what_was_made_is_closed_when_a_later_dependency_fails() -> None:
    log: list[str] = []

    async def first() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            log.append("closed")

    def second() -> int:
        raise LookupError("none")

    def tool(a: int = Depends(first), b: int = Depends(second)) -> None:
        log.append("called")

    with pytest.raises(LookupError):
        await run(binding(tool))
    assert log == ["closed"]


async def test_blocking_dependencies_stay_off_the_loop() -> None:
    threads: list[int] = []

    def plain() -> None:
        threads.append(threading.get_ident())

    def generator() -> Iterator[None]:
        threads.append(threading.get_ident())
        yield
        threads.append(threading.get_ident())

    def tool(a: None = Depends(plain), b: None = Depends(generator)) -> None:
        pass

    await run(binding(tool))
    assert len(threads) == 3
    assert threading.get_ident() not in threads


def test_a_cycle_is_refused_at_registration() -> None:
    def first(x: Any = None) -> Any: ...
    def second(x: Any = Depends(first)) -> Any: ...

    first.__defaults__ = (Depends(second),)

    def tool(a: Any = Depends(first)) -> None: ...

    with pytest.raises(ServerError, match="first → second → first"):
        binding(tool)


def test_a_parameter_that_nothing_fills_is_refused_at_registration() -> None:
    def connect(url: str) -> str:
        return url

    def tool(db: str = Depends(connect)) -> None: ...

    with pytest.raises(ServerError, match=r"'url'.*connect"):
        binding(tool)


def test_without_dependencies_there_is_no_plan() -> None:
    def tool(a: int) -> None: ...

    assert binding(tool).call_plan.dependencies is None


def test_only_functions_can_be_depended_on() -> None:
    with pytest.raises(TypeError):
        Depends("db")  # type: ignore[arg-type]

"""Sign-ins in a storage that several programs use at the same time."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.auth.stand_in import Reply, Request, Scene, Stage

from toolwire.auth import FileStorage, MemoryStorage, NeedsLogin, OAuth, SignInFailed, StoreStorage
from toolwire.auth.client.records import SignInRecords
from toolwire.auth.client.storage import Storage, lock
from toolwire.auth.client.token_source import STORED_SECONDS
from toolwire.stores import MemoryKV

SECRET = "only a test, but long enough"


class PlainStorage:
    """A storage with the two methods that every storage has."""

    def __init__(self) -> None:
        self.values: dict[str, str | None] = {}

    async def load(self, key: str) -> str | None:
        await asyncio.sleep(0)
        return self.values.get(key)

    async def save(self, key: str, value: str | None) -> None:
        await asyncio.sleep(0)
        self.values[key] = value


#: Each makes a function that opens the same storage, as another process would where there can be one.
STORAGES: dict[str, Callable[[Path], Callable[[], Storage]]] = {
    "file": lambda folder: lambda: FileStorage(folder),
    "store": lambda folder: _opener(MemoryKV()),
    "memory": lambda folder: _same(MemoryStorage()),
    "plain": lambda folder: _same(PlainStorage()),
}


def _opener(kv: MemoryKV) -> Callable[[], Storage]:
    return lambda: StoreStorage(kv, SECRET)


def _same(storage: Storage) -> Callable[[], Storage]:
    return lambda: storage


@pytest.fixture(params=STORAGES)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Storage]:
    return STORAGES[request.param](tmp_path)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with Stage() as made:
        yield made


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


async def test_one_of_many_programs_refreshes(scene: Scene, opened: Callable[[], Storage]) -> None:
    clock = Clock()
    assert await scene.call(OAuth(login=scene.person, storage=opened(), clock=clock)) == 200
    programs = [OAuth(login=None, storage=opened(), clock=clock) for _ in range(6)]
    for active in (programs, programs[:3], programs):
        # In the last round three programs have a refresh token that was used long ago.
        scene.login.expire()
        clock.now += 7200
        assert await asyncio.gather(*(scene.call(each) for each in active)) == [200] * len(active)
    assert scene.login.reuses == 0
    assert [each["grant_type"] for each in scene.login.grants].count("refresh_token") == 3


async def test_program_without_a_token_uses_the_sign_in_of_another(scene: Scene) -> None:
    storage = MemoryStorage()
    late = OAuth(login=None, storage=storage)
    with pytest.raises(NeedsLogin):
        await scene.call(late)
    assert await scene.call(OAuth(login=scene.person, storage=storage)) == 200
    assert await scene.call(late) == 200


async def test_refused_refresh_leaves_the_record_of_another_program(scene: Scene) -> None:
    """A storage without a lock for processes: another program signs in while the refresh is under way."""
    storage, clock = PlainStorage(), Clock()
    assert await scene.call(OAuth(login=scene.person, storage=storage, clock=clock)) == 200
    (key,) = (each for each in storage.values if each.startswith("token "))
    before = storage.values[key]
    assert before is not None
    scene.login.expire()
    clock.now += 7200
    other = scene.login.issue("")
    winner = before.replace("token-3", other["access_token"]).replace("refresh-3", other["refresh_token"])
    winner = winner.replace("1003570", "2003570")
    assert winner.count(other["access_token"]) == 1 and "2003570" in winner

    def refuse(request: Request) -> Reply:
        storage.values[key] = winner
        return Reply(400, {"error": "invalid_grant"})

    scene.login.routes["/token"] = refuse
    assert await scene.call(OAuth(login=None, storage=storage, clock=clock)) == 200
    assert storage.values[key] == winner


async def test_refresh_does_not_undo_a_sign_out(scene: Scene, opened: Callable[[], Storage]) -> None:
    clock = Clock()
    one, two = (OAuth(login=scene.person, storage=opened(), clock=clock) for _ in range(2))
    assert await scene.call(one) == 200
    assert await scene.call(two) == 200
    await one.forget(scene.server.mcp)
    clock.now += 7200
    assert await two.headers("POST", scene.server.mcp) == {}
    assert await opened_record(opened(), scene) is None


async def test_sign_out_of_another_program_ends_a_token_that_is_still_fresh(
    scene: Scene, opened: Callable[[], Storage]
) -> None:
    clock = Clock()
    one, two = (OAuth(login=scene.person, storage=opened(), clock=clock) for _ in range(2))
    assert await scene.call(one) == 200
    assert await scene.call(two) == 200
    await one.forget(scene.server.mcp)
    clock.now += STORED_SECONDS
    assert await two.headers("POST", scene.server.mcp) == {}


async def opened_record(storage: Storage, scene: Scene) -> Any:
    return await SignInRecords(storage).record(scene.server.mcp)


async def test_answer_of_an_abandoned_refresh_is_stored(scene: Scene, tmp_path: Path) -> None:
    """The call that asked for the refresh is cancelled; the new refresh token is the only valid one."""
    storage, clock = FileStorage(tmp_path), Clock()
    assert await scene.call(OAuth(login=scene.person, storage=storage, clock=clock)) == 200
    scene.login.expire()
    clock.now += 7200
    auth = OAuth(login=None, storage=storage, clock=clock)
    answer, issue, loop = scene.login.routes["/token"], asyncio.Event(), asyncio.get_running_loop()

    def cancel_caller(request: Request) -> Reply:
        caller.cancel()
        loop.call_soon(issue.set)
        return answer(request)

    scene.login.routes["/token"] = cancel_caller
    caller = asyncio.ensure_future(auth.headers("POST", scene.server.mcp))
    with pytest.raises(asyncio.CancelledError):
        await caller
    await issue.wait()
    scene.login.routes["/token"] = answer
    assert await scene.call(OAuth(login=None, storage=storage, clock=clock)) == 200
    assert scene.login.reuses == 0


async def test_programs_that_register_at_once_share_a_registration(scene: Scene, opened: Callable[[], Storage]) -> None:
    programs = [OAuth(login=None, storage=opened(), redirect_uri="https://app.example/callback") for _ in range(4)]
    urls = set()
    for outcome in await asyncio.gather(*(scene.call(each) for each in programs), return_exceptions=True):
        assert isinstance(outcome, NeedsLogin)
        urls.add(outcome.url)
    assert len(scene.login.clients) == 1
    assert len(urls) == 1


async def test_answer_of_a_sign_in_counts_once(scene: Scene, opened: Callable[[], Storage]) -> None:
    with pytest.raises(NeedsLogin) as caught:
        await scene.call(OAuth(login=None, storage=opened()))
    answer = await scene.person(caught.value.url)
    finished = [OAuth(login=None, storage=opened()).finish(answer) for _ in range(4)]
    outcomes = await asyncio.gather(*finished, return_exceptions=True)
    assert outcomes.count(None) == 1
    assert sum(isinstance(each, SignInFailed) for each in outcomes) == 3


async def test_credentials_belong_to_the_issuer_that_was_first(opened: Callable[[], Storage]) -> None:
    claims = [SignInRecords(opened()).claim_issuer("mine", f"https://{number}.example") for number in range(4)]
    assert len(set(await asyncio.gather(*claims))) == 1


async def test_program_that_lost_the_claim_shows_its_credentials_to_no_other_issuer(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = MemoryStorage()
    auth = OAuth(login=scene.person, storage=storage, client_id="mine", client_secret="hush")
    publish = scene.login.routes["/.well-known/oauth-authorization-server"]

    def publish_late(request: Request) -> Reply:
        storage.save("issuer mine", '"https://first.example"')  # Another process was faster.
        return publish(request)

    scene.login.routes["/.well-known/oauth-authorization-server"] = publish_late
    with pytest.raises(SignInFailed, match="credentials of this client are for https:"):
        await scene.call(auth)
    assert scene.login.grants == []


async def test_discarded_registration_is_the_one_that_was_refused(opened: Callable[[], Storage]) -> None:
    from toolwire.auth.flow.clients import Registration

    records, issuer = SignInRecords(opened()), "https://login.example"
    await records.write_registration(issuer, Registration("new"))
    await records.discard_registration(issuer, Registration("old"))
    assert await records.registration(issuer) is not None
    await records.discard_registration(issuer, Registration("new"))
    assert await records.registration(issuer) is None


# --- locks ---


async def test_lock_has_one_holder_at_a_time(opened: Callable[[], Storage]) -> None:
    inside = most = 0

    async def enter(key: str) -> None:
        nonlocal inside, most
        async with lock(opened(), key):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(enter("one") for _ in range(5)))
    assert most == 1
    async with lock(opened(), "one"), lock(opened(), "two"):
        pass  # Each key has a lock of its own.


async def test_waiting_for_a_lock_ends(opened: Callable[[], Storage], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.stores.leases.poll.__defaults__", (0.0,))
    async with lock(opened(), "token https://h/mcp"):
        with pytest.raises(TimeoutError):
            async with lock(opened(), "token https://h/mcp"):
                pass
        with pytest.raises(SignInFailed, match="Another process"):
            async with SignInRecords(opened()).lock_record("https://h/mcp"):
                pass
    async with lock(opened(), "token https://h/mcp"):
        pass


async def test_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    code = """if True:
        import asyncio, sys, threading
        from toolwire.auth import FileStorage
        async def main():
            async with FileStorage(sys.argv[1]).lock("k"):
                print("holds", flush=True)
                threading.Event().wait()
        asyncio.run(main())
    """
    storage = FileStorage(tmp_path)
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "holds\n"
        waiting = asyncio.ensure_future(_enter(storage))
        await asyncio.sleep(0)
        assert not waiting.done()
        process.kill()
        async with asyncio.timeout(20):
            await waiting


async def _enter(storage: FileStorage) -> None:
    async with storage.lock("k"):
        pass


async def test_expired_lease_does_not_release_its_successor() -> None:
    kv = MemoryKV()
    one, two = StoreStorage(kv, SECRET), StoreStorage(kv, SECRET)
    async with one.lock("k"):
        (name,) = await kv.keys("toolwire:sign-in:lease:")
        await kv.delete(name)  # As if it had expired.
        second = two.lock("k")
        await second.__aenter__()
    assert await kv.keys("toolwire:sign-in:lease:") == [name]
    await second.__aexit__(None, None, None)


async def test_folder_on_a_file_system_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(descriptor: int) -> bool:
        raise OSError(38, "Function not implemented")

    import toolwire.platforms

    monkeypatch.setattr(toolwire.platforms, "try_lock", refuse)
    storage = FileStorage(tmp_path)
    async with lock(storage, "k"):
        pass
    assert "has no file locks" in caplog.text


async def test_store_has_no_secret_in_the_clear() -> None:
    kv = MemoryKV()
    await StoreStorage(kv, SECRET).save("token https://h/mcp", "hush")
    (name,) = await kv.keys("")
    assert "h/mcp" not in name
    assert b"hush" not in (await kv.get(name) or b"")
    assert await StoreStorage(kv, "another secret, long enough", SECRET).load("token https://h/mcp") == "hush"
    assert await StoreStorage(kv, "another secret, long enough").load("token https://h/mcp") is None

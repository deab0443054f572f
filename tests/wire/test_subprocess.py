"""Servers as child processes: messages, standard error, and the end of the whole tree."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cases import cases
from tests.wire.process_end import wait_until_gone

from toolwire import platforms
from toolwire.protocol.errors import Unreachable
from toolwire.protocol.framing import Oversized
from toolwire.wire import subprocess as subprocess_module
from toolwire.wire.subprocess import ProcessChannel

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and groups are tested the POSIX way here")

Run = Callable[[Coroutine[Any, Any, None]], None]

ECHO = """
import sys
for line in sys.stdin.buffer:
    sys.stdout.buffer.write(b"echo " + line)
    sys.stdout.buffer.flush()
"""


def python(script: str, *args: str) -> list[str]:
    return [sys.executable, "-c", script, *args]


@pytest.fixture(params=["asyncio", "uvloop", "threads"])
def run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    factory = None
    if request.param == "uvloop":
        factory = pytest.importorskip("uvloop").new_event_loop
    if request.param == "threads":
        # What Windows does, as far as POSIX can show it.
        from toolwire.platforms import posix

        monkeypatch.setattr(platforms, "own_end", lambda file: None)
        monkeypatch.setattr(platforms, "watch_exit", posix.watch_exit)
    with asyncio.Runner(loop_factory=factory) as runner:
        yield runner.run


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A zombie that its new parent has not collected yet is not running.
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.covers("3.1.1", "STD-1", "STD-3")
def test_messages_go_to_the_child_and_back(run: Run) -> None:
    async def main() -> None:
        channel = await ProcessChannel.spawn(python(ECHO))
        for number in range(3):
            channel.write(b"%d" % number)
            assert await channel.read() == b"echo %d" % number
        assert channel.returncode is None
        assert channel.is_connected
        await channel.close()
        assert channel.returncode == 0
        assert not is_running(channel.pid)

    run(main())


def test_pushed_messages_come_before_the_end_and_the_end_knows_the_status(run: Run) -> None:
    async def main() -> None:
        script = "import sys; print('last'); print('words', file=sys.stderr); sys.exit(3)"
        channel = await ProcessChannel.spawn(python(script))
        ended = asyncio.get_running_loop().create_future()
        messages: list[bytes] = []
        channel.attach(messages.append, lambda error: ended.set_result(channel.returncode))
        await ended
        await channel.close()
        assert messages == [b"last"]
        assert channel.returncode == 3
        assert channel.stderr_tail == "words"

    run(main())


async def test_status_and_standard_error_are_known_when_the_end_is_told() -> None:
    script = "import os, signal; os.write(2, b'why'); os.kill(os.getpid(), signal.SIGKILL)"
    channel = await ProcessChannel.spawn(python(script))
    ended = asyncio.get_running_loop().create_future()
    # Standard output ends a moment before the process does.
    channel.attach(lambda message: None, lambda error: ended.set_result((channel.returncode, channel.stderr_tail)))
    assert await ended == (-signal.SIGKILL, "why")
    await channel.close()


async def test_a_child_that_only_closes_its_output_has_ended_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess_module, "LAST_WORDS_SECONDS", 0.01)
    channel = await ProcessChannel.spawn(python("import os, sys; os.close(1); sys.stdin.read()"))
    assert await channel.read() is None
    assert channel.returncode is None
    await channel.close()
    assert channel.returncode == 0


@pytest.mark.covers("3.1.5")
@pytest.mark.parametrize(
    ("inherit", "passed"),
    [(False, {"LC_TIME", "ADDED"}), (True, {"LC_TIME", "AWS_SECRET_ACCESS_KEY", "ADDED"})],
    ids=["only what is needed", "everything but our own"],
)
async def test_a_child_gets_what_programs_need_and_what_it_is_given(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, inherit: bool, passed: set[str]
) -> None:
    secret = {"AWS_SECRET_ACCESS_KEY": "s", "TOOLWIRE_SECRET": "s", "TOOLWIRE_AUDIT_KEY": "s", "TOOLWIRE_TOKEN": "s"}
    for name, value in {**secret, "LC_TIME": "C"}.items():
        monkeypatch.setenv(name, value)
    script = "import json, os; print(json.dumps([dict(os.environ), os.getcwd()]))"
    channel = await ProcessChannel.spawn(python(script), env={"ADDED": "two"}, cwd=tmp_path, inherit_env=inherit)
    line = await channel.read()
    assert line is not None
    found, folder = json.loads(line)
    await channel.close()
    assert folder == str(tmp_path.resolve())
    assert found["PATH"] == os.environ["PATH"] and found["HOME"] == os.environ["HOME"]
    assert found.keys() & {*secret, "LC_TIME", "ADDED"} == passed


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what was not read")
async def test_a_channel_knows_whether_its_child_reads() -> None:
    channel = await ProcessChannel.spawn(python("import sys; sys.stdin.readline(); print('read')"))
    channel.write(b"x" * 200_000)
    assert channel.unread
    assert await channel.read() == b"read"
    while channel.unread:
        await asyncio.sleep(0)
    await channel.close()
    assert channel.unread is None


async def test_our_own_variables_are_passed_when_they_are_given() -> None:
    script = "import os; print(os.environ['TOOLWIRE_STORES'])"
    channel = await ProcessChannel.spawn(python(script), env={"TOOLWIRE_STORES": "here"})
    assert await channel.read() == b"here"
    await channel.close()


@cases(
    ("command", "options", "reason"),
    [
        (["/nonexistent/server", "--token=secret"], {}, "cannot start '/nonexistent/server': No such file"),
        (["nonexistent --token=secret"], {}, "cannot start 'nonexistent': its arguments stand in the same text"),
        (["/nonexistent/my server"], {}, "cannot start '/nonexistent/my server': No such file"),
        ([" "], {}, "cannot start ' ': No such file"),
        ([os.devnull], {}, "cannot start '/dev/null': Permission denied"),
        ([sys.executable], {"cwd": "/nonexistent"}, "working directory /nonexistent does not exist"),
        ([], {}, "empty command"),
        (["a\0b"], {}, "null"),
    ],
)
async def test_what_can_not_be_started_is_unreachable_with_the_reason(
    command: list[str], options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(Unreachable, match=reason) as raised:
        await ProcessChannel.spawn(command, **options)
    assert "secret" not in str(raised.value)


async def test_a_message_over_the_limit_is_told() -> None:
    channel = await ProcessChannel.spawn(python("print('x' * 1000); print('next')"), limit=100)
    assert isinstance(await channel.read(), Oversized)
    assert await channel.read() == b"next"
    assert await channel.read() is None
    await channel.close()


# --- standard error


@pytest.mark.covers("STD-4", "STD-5", "3.1.3")
def test_ten_megabytes_of_standard_error_block_nothing(run: Run) -> None:
    script = """
import sys
for number in range(100_000):
    sys.stderr.write("%05d " % number + "x" * 100 + "\\n")
sys.stderr.write("y" * 100_000 + "\\nlast\\n")
sys.stderr.flush()
print("done", flush=True)
sys.stdin.read()
"""

    async def main() -> None:
        channel = await ProcessChannel.spawn(python(script))
        assert await channel.read() == b"done"
        await channel.close()
        lines = channel.stderr_tail.splitlines()
        assert lines[-1] == "last"
        assert len(lines) == 50
        assert sum(map(len, lines)) < 100_000

    run(main())


async def test_lines_of_standard_error_are_forwarded() -> None:
    seen: list[str] = []
    script = "import sys; sys.stderr.buffer.write(b'one\\ntwo \\xff\\nthree')"
    channel = await ProcessChannel.spawn(python(script), on_stderr=seen.append)
    assert await channel.read() is None
    await channel.close()
    assert seen == ["one", "two \ufffd", "three"]


async def test_standard_error_can_be_shared(capfd: pytest.CaptureFixture[str]) -> None:
    channel = await ProcessChannel.spawn(python("import sys; sys.stderr.write('seen')"), on_stderr="inherit")
    assert await channel.read() is None
    await channel.close()
    assert capfd.readouterr().err == "seen"


# --- the end


TREE = """
import signal, subprocess, sys
if sys.argv[1] == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
# The grandchild is deaf to the signal too: what is ignored stays ignored.
child = "import time; print('up', flush=True); time.sleep(600)"
grandchild = subprocess.Popen(
    [sys.executable, "-c", child],
    stdin=subprocess.DEVNULL,
    stdout=subprocess.PIPE,
    stderr=subprocess.DEVNULL,
    start_new_session=sys.argv[2] == "session",
)
grandchild.stdout.readline()
print(grandchild.pid, flush=True)
if sys.argv[1] == "leaves":
    sys.stdin.read()
elif sys.argv[1] != "exits":
    import time
    time.sleep(600)
"""

ENDS = [
    *((manner, "group") for manner in ("polite", "deaf", "exits", "leaves")),
    # Elsewhere a process that began a session of its own cannot be found.
    *((manner, "session") for manner in ("polite", "deaf", "leaves", "killed") if sys.platform == "linux"),
]


def held_processes() -> int:
    """How many descriptors of processes are open here."""
    if sys.platform != "linux":
        return 0
    held = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            held += os.readlink(f"/proc/self/fd/{name}") == "anon_inode:[pidfd]"
    return held


@pytest.mark.parametrize(("manner", "place"), ENDS)
def test_the_whole_tree_ends(run: Run, manner: str, place: str) -> None:
    async def main() -> None:
        before = held_processes()
        # Who is deaf is waited for twice in vain; a busy machine takes its time to end the others.
        channel = await ProcessChannel.spawn(python(TREE, manner, place), grace=0.1 if manner == "deaf" else 0.5)
        message = await channel.read()
        assert message is not None
        grandchild = int(message)
        if manner == "exits":
            assert await channel.read() is None
        if manner == "killed":
            channel.kill()
        await channel.close()
        assert not is_running(channel.pid)
        await asyncio.to_thread(wait_until_gone, grandchild)
        # On a busy machine one that would leave by itself may be too slow for that.
        codes = {"polite": {-signal.SIGTERM}, "deaf": {-signal.SIGKILL}, "exits": {0}, "killed": {-signal.SIGKILL}}
        assert channel.returncode in codes.get(manner, {0, -signal.SIGTERM})
        assert held_processes() == before

    run(main())


def test_the_child_may_clean_up_after_its_input_ended(run: Run, tmp_path: Path) -> None:
    script = "import sys; sys.stdin.read(); open(sys.argv[1], 'w').write('clean')"

    async def main() -> None:
        channel = await ProcessChannel.spawn(python(script, str(tmp_path / "mark")))
        await channel.close()
        assert channel.returncode == 0

    run(main())
    assert (tmp_path / "mark").read_text() == "clean"


def test_a_server_behind_a_launcher_may_clean_up_when_asked_to_terminate(run: Run, tmp_path: Path) -> None:
    # The launcher dies of the signal at once; the one that matters is still busy.
    server = """
import signal, sys, time
def stop(*args):
    time.sleep(0.2)
    open(sys.argv[1], "w").write("clean")
    sys.exit()
signal.signal(signal.SIGTERM, stop)
print("ready", flush=True)
time.sleep(600)
"""
    launcher = """
import subprocess, sys
subprocess.run([sys.executable, "-c", *sys.argv[1:]])
"""

    async def main() -> None:
        channel = await ProcessChannel.spawn(python(launcher, server, str(tmp_path / "mark")), grace=1)
        assert await channel.read() == b"ready"
        await channel.close()

    run(main())
    assert (tmp_path / "mark").read_text() == "clean"


def test_a_crash_ends_the_channel_though_a_grandchild_holds_its_output(run: Run) -> None:
    script = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
os.abort()
"""

    async def main() -> None:
        channel = await ProcessChannel.spawn(python(script), grace=0.1)
        message = await channel.read()
        assert message is not None
        assert await channel.read() is None
        await channel.close()
        await asyncio.to_thread(wait_until_gone, int(message))
        assert channel.returncode == -signal.SIGABRT

    run(main())


def test_closing_twice_from_two_tasks_and_after_a_cancellation(run: Run) -> None:
    async def main() -> None:
        channel = await ProcessChannel.spawn(python("import time; time.sleep(600)"), grace=0.05)
        first = asyncio.ensure_future(channel.close())
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        await asyncio.gather(channel.close(), channel.close())
        assert channel.returncode is not None
        with pytest.raises(Unreachable):
            channel.write(b"late")
        assert await channel.read() is None

    run(main())


def test_killing_is_immediate(run: Run) -> None:
    async def main() -> None:
        channel = await ProcessChannel.spawn(python("import time; print('up', flush=True); time.sleep(600)"), grace=60)
        assert await channel.read() == b"up"
        channel.kill()
        assert await channel.read() is None
        await channel.close()
        assert channel.returncode == -signal.SIGKILL

    run(main())


def test_no_zombie_is_left_even_when_nobody_closes(run: Run) -> None:
    async def main() -> None:
        channel = await ProcessChannel.spawn(python("pass"))
        assert await channel.read() is None
        while channel._closer is None or not channel._closer.done():
            await asyncio.sleep(0)
        with pytest.raises(ProcessLookupError):
            os.kill(channel.pid, 0)

    run(main())


@pytest.mark.skipif(sys.platform != "linux", reason="counts the entries of /proc/self/fd")
async def test_no_descriptor_is_left_behind() -> None:
    before = set(os.listdir("/proc/self/fd"))
    for script in (ECHO, "pass", "import time; time.sleep(600)"):
        channel = await ProcessChannel.spawn(python(script), grace=0.05)
        await channel.close()
    # Threads of earlier tests may close theirs meanwhile, so only new ones count.
    assert set(os.listdir("/proc/self/fd")) - before == set()


def test_a_child_that_stops_reading_makes_writing_congested_but_is_still_read(run: Run) -> None:
    script = """
import sys, time
print("up", flush=True)
time.sleep(0.2)
print("still talking", flush=True)
sys.stdin.read()
"""

    async def main() -> None:
        channel = await ProcessChannel.spawn(python(script))
        assert await channel.read() == b"up"
        while not channel.congested:
            channel.write(b"x" * 100_000)
        assert await channel.read() == b"still talking"
        await channel.drain()
        assert not channel.congested
        await channel.close()

    run(main())


def test_writing_to_a_child_that_closed_its_input_is_unreachable_but_its_output_is_read(run: Run) -> None:
    script = """
import os, sys
os.close(0)
print("closed", flush=True)
open(sys.argv[1]).read()
print("said", flush=True)
"""

    async def main(fifo: str) -> None:
        os.mkfifo(fifo)
        channel = await ProcessChannel.spawn(python(script, fifo))
        assert await channel.read() == b"closed"
        channel.write(b"hello?")
        await channel.flush()
        with pytest.raises(Unreachable):
            channel.write(b"hello?")
        await asyncio.to_thread(Path(fifo).write_text, "")
        assert await channel.read() == b"said"
        await channel.close()

    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        run(main(f"{directory}/fifo"))


def test_a_program_that_exits_without_closing_takes_its_child_along(tmp_path: Path) -> None:
    script = """
import asyncio, os, sys
from toolwire.wire.subprocess import ProcessChannel
async def main():
    child = "import os, sys; sys.stdin.read(); os.write(int(sys.argv[1]), b'ended')"
    report = 'exec "$@" 9>' + sys.argv[1]
    channel = await ProcessChannel.spawn(["sh", "-c", report, "sh", sys.executable, "-c", child, "9"])
    os._exit(0)
asyncio.run(main())
"""
    os.mkfifo(tmp_path / "fifo")
    program = subprocess.Popen(python(script, str(tmp_path / "fifo")))
    assert (tmp_path / "fifo").read_bytes() == b"ended"
    program.wait()


def test_an_abandoned_channel_lets_its_child_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")

    async def main() -> None:
        script = "import sys; sys.stdin.read(); open(sys.argv[1], 'w').write('ended')"
        await ProcessChannel.spawn(python(script, str(tmp_path / "fifo")))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        asyncio.run(main())
        gc.collect()
        assert (tmp_path / "fifo").read_text() == "ended"

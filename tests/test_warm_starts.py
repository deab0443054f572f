"""A copy of a process that has imported Toolwire is to its program what a started process is."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests import warm_starts
from tests.conftest import STARTS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux can make such copies")

# What a program can find out about its own start.
TELLS = """
import __main__, json, os, signal, sys

told = {
    "parent": os.getppid(), "folder": os.getcwd(), "variables": dict(os.environ), "words": sys.argv,
    "all words": sys.orig_argv, "path": sys.path, "flags": str(sys.flags), "main": __main__.__name__,
    "file": __main__.__file__, "spec": str(__main__.__spec__).split(" ")[0], "members": sorted(vars(__main__)),
    "descriptors": sorted(each for each in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{each}")),
    "streams": [
        (each.encoding, each.errors, each.line_buffering, each.write_through, type(each.buffer).__name__, each.fileno())
        for each in (sys.stdin, sys.stdout, sys.stderr)
    ],
    "same streams": [sys.stdin is sys.__stdin__, sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__],
    "signals": {number.name: str(signal.getsignal(number)).split(" at ")[0] for number in signal.valid_signals()
                if isinstance(number, signal.Signals)},
    "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])), "umask": os.umask(0),
    "is leader": os.getsid(0) == os.getpid(), "group": os.getpgrp() == os.getpid(), "input": sys.stdin.read(),
}
with open(os.path.dirname(__file__) + "/told.json", "w") as file:
    json.dump(told, file)
END
"""


def program(folder: Path, end: str = "os._exit(0)") -> Path:
    file = folder / "tells.py"
    file.write_text(TELLS.replace("END", end))
    return file


def both(words: list[str | Path], **options: Any) -> list[tuple[int, Any, str, str]]:
    """Run a command as a started process and as a copy; return how each ended, and what it said."""
    found = []
    for is_on in (False, True):
        STARTS.is_on = is_on
        # The library of the terminal has put variables into this process that `os.environ` does not know.
        options.setdefault("env", dict(os.environ))
        done = subprocess.run(words, capture_output=True, text=True, **options)
        told = Path(words[-1]).with_name("told.json")
        found.append(
            (done.returncode, json.loads(told.read_text()) if told.is_file() else None, done.stdout, done.stderr)
        )
        told.unlink(missing_ok=True)
    return found


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies also where the whole run starts real processes."""
    monkeypatch.setattr(subprocess.Popen, "_execute_child", lambda *given: STARTS.start(*given))


@pytest.mark.parametrize("further", [[], ["--main"]], ids=" ".join)
@pytest.mark.parametrize("options", [[], ["-P"]], ids=" ".join)
def test_copy_finds_what_a_started_process_finds(tmp_path: Path, options: list[str], further: list[str]) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    file = program(tmp_path)
    command = [sys.executable, *options, "-m", "toolwire", "run", "--log-level", "info", *further, file]
    read, write = os.pipe()
    before = os.umask(0o027)
    try:
        started, copied = both(
            command,
            cwd=folder,
            env={"PATH": "/bin", "LANG": os.environ.get("LANG", ""), "OTHER": "é"},
            input="said",
            pass_fds=[write],
            start_new_session=True,
        )
        assert copied == started
        assert started[1]["parent"] == os.getpid()
        assert started[1]["input"] == ("said" if further else "")
        assert started[1]["is leader"]
        assert str(write) in started[1]["descriptors"]
        plain, copy = both(command, stdin=subprocess.DEVNULL)
        assert copy == plain
        assert not plain[1]["is leader"]
    finally:
        os.umask(before)
        os.close(read)
        os.close(write)


@pytest.mark.parametrize(
    "end", ["sys.exit(5)", "raise SystemExit('said at the end')", "os.kill(os.getpid(), signal.SIGKILL)"]
)
def test_copy_ends_as_a_started_process_ends(tmp_path: Path, end: str) -> None:
    command: list[str | Path] = [sys.executable, "-m", "toolwire", "run", program(tmp_path, end)]
    started, copied = both(command, stdin=subprocess.DEVNULL)
    assert copied == started
    assert started[0] in (5, 1, -signal.SIGKILL)


def test_wrong_words_are_answered_by_a_copy() -> None:
    started, copied = both([sys.executable, "-m", "toolwire", "lists"])
    assert copied == started
    assert "did you mean" in started[3]


OURS = {
    "args": [sys.executable, "-P", "-m", "toolwire", "run"],
    **dict.fromkeys(("executable", "preexec_fn", "cwd", "env", "gid", "gids", "uid")),
    "close_fds": True,
    "restore_signals": True,
    "shell": False,
    "umask": -1,
    "process_group": -1,
}


@pytest.mark.parametrize(
    "other",
    [
        {"args": [sys.executable, "file.py"]},
        {"args": [sys.executable, "-m", "toolwires"]},
        {"args": [sys.executable, "-X", "dev", "-m", "toolwire"]},
        {"args": ["other", "-m", "toolwire"]},
        {"args": f"{sys.executable} -m toolwire"},
        {"cwd": "/nowhere"},
        {"env": {"PYTHONPATH": "/folder"}},
        {"env": {"LC_ALL": "another"}},
        {"preexec_fn": print},
        {"process_group": 0},
        {"umask": 0},
        {"close_fds": False},
    ],
    ids=str,
)
def test_other_programs_and_options_start_as_ever(other: dict[str, Any]) -> None:
    assert warm_starts.find_options(OURS, is_for_all=False) == ["-P"]
    assert warm_starts.find_options({**OURS, **other}, is_for_all=False) is None


def test_copy_inherits_the_variables_and_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER", "é")
    monkeypatch.chdir(tmp_path)
    subprocess.run([sys.executable, "-m", "toolwire", "run", program(tmp_path)], check=True)
    told = json.loads((tmp_path / "told.json").read_text())
    assert (told["variables"]["OTHER"], told["folder"]) == ("é", str(tmp_path))


def say(text: str, end: str) -> str:
    about = "sys.argv, sys.path, sorted(vars(__main__)), __loader__, __spec__"
    return f"import __main__, sys\nprint({text})\nprint({about})\n{end}"


@pytest.mark.parametrize("options", [[], ["-P"]], ids=" ".join)
@pytest.mark.parametrize("kind", ["code", "file", "module"])
def test_copy_runs_any_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], kind: str) -> None:
    monkeypatch.setattr(STARTS, "is_for_all", True)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "program.py").write_text(say("__file__", "1 / 0"))
    words = {
        "code": ["-c", say("'code'", "sys.exit('said')")],
        "file": ["folder/program.py"],
        "module": ["-m", "this"],
    }[kind]
    started, copied = both([sys.executable, *options, *words, "-a", "b"])
    address = re.compile(" at 0x[0-9a-f]+")
    assert [address.sub("", str(part)) for part in copied] == [address.sub("", str(part)) for part in started]
    assert started[0] == (kind != "module")


@pytest.mark.cold_start
def test_marked_test_starts_real_processes() -> None:
    assert not STARTS.is_on

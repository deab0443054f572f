"""Pages under `toolwire dev`: a change of a page, or of a file that it is made of, loads the server again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from toolwire import Server
from toolwire.cli.reloading import LoadFailed, Reloader
from toolwire.util import file_watch

SERVER = """
from toolwire import Server

server = Server("s")
server.app("page.html")
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_watch, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(file_watch, "QUIET_SECONDS", 0)


@pytest.mark.covers("APP-8A.4")
async def test_files_of_a_page_are_watched(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(SERVER)
    (tmp_path / "page.html").write_text("<link rel=stylesheet href=a.css>")
    (tmp_path / "a.css").write_text("a{}")
    reloader = Reloader(str(tmp_path / "server.py"))
    assert isinstance(reloader.load(), Server)
    for name, text in (("a.css", "b{color:red}"), ("page.html", "<p>another page</p>")):
        waiting = asyncio.ensure_future(reloader.changed())
        (tmp_path / name).write_text(text)
        await waiting
        server = reloader.load()
        assert isinstance(server, Server)
        (read,) = await server.read_resource("ui://s/page.html")
        assert isinstance(read.text, str)
        assert text in read.text


async def test_a_broken_page_is_watched(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(SERVER)
    (tmp_path / "page.html").write_text("<img src=gone.png>")
    reloader = Reloader(str(tmp_path / "server.py"))
    failed = reloader.load()
    assert isinstance(failed, LoadFailed)
    assert "there is no file 'gone.png'" in failed.message
    waiting = asyncio.ensure_future(reloader.changed())
    (tmp_path / "page.html").write_text("<p>mended</p>")
    await waiting
    assert isinstance(reloader.load(), Server)


@pytest.mark.parametrize("missing", ["page.html", "later.css"])
async def test_a_file_that_is_not_there_yet_is_waited_for(missing: str, tmp_path: Path) -> None:
    files = {"page.html": "<link rel=stylesheet href=later.css>", "later.css": "a{}"}
    (tmp_path / "server.py").write_text(SERVER)
    for name, text in files.items():
        if name != missing:
            (tmp_path / name).write_text(text)
    reloader = Reloader(str(tmp_path / "server.py"))
    assert isinstance(reloader.load(), LoadFailed)
    waiting = asyncio.ensure_future(reloader.changed())
    (tmp_path / missing).write_text(files[missing])
    await asyncio.wait_for(waiting, 10)
    assert isinstance(reloader.load(), Server)

"""`toolwire install`: what it writes for each client, and that it never harms what is there."""

from __future__ import annotations

import json
import os
import stat
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import Command
from tests.openapi.petstore import petstore

from toolwire.cli import client_files, keyboard, main


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(client_files, "_home", lambda: tmp_path)
    monkeypatch.setattr(client_files, "_application_data", lambda: tmp_path / "data")
    return tmp_path


@pytest.fixture
def server(home: Path) -> Path:
    file = home / "shop" / "server.py"
    file.parent.mkdir()
    file.write_text("from toolwire import Server\nserver = Server('shop')\n")
    return file


FILES = {
    "claude-desktop": ("data/Claude/claude_desktop_config.json", "mcpServers"),
    "claude-code": (".claude.json", "mcpServers"),
    "vscode": ("data/Code/User/mcp.json", "servers"),
    "cursor": (".cursor/mcp.json", "mcpServers"),
}


@pytest.mark.parametrize("client", FILES)
def test_every_client_gets_its_own_form(toolwire: Command, home: Path, server: Path, client: str) -> None:
    done = toolwire("install", str(server), "--client", client, "--env", "KEY=a b", "--yes")
    assert done.status == 0, done.err
    path, member = FILES[client]
    entry = json.loads((home / path).read_text())[member]["shop"]
    assert entry["command"] == sys.executable
    assert entry["args"] == ["-P", "-m", "toolwire", "run", str(server)]
    assert entry["env"] == {"KEY": "a b"}
    assert f"will run: {sys.executable} -P -m toolwire run {server}" in done.out
    # What was written can be read as a target, and serves.
    assert toolwire("list", f"{client}:shop").out.startswith("shop 1.0.0\n")


def test_a_url_and_a_command(toolwire: Command, home: Path) -> None:
    url = "https://shop.example:8443/mcp"
    assert toolwire("install", url, "--client", "claude-desktop", "--client", "vscode", "--yes").status == 0
    desktop = json.loads((home / FILES["claude-desktop"][0]).read_text())["mcpServers"]
    assert desktop == {"shop-example": {"command": sys.executable, "args": ["-P", "-m", "toolwire", "bridge", url]}}
    code = json.loads((home / FILES["vscode"][0]).read_text())["servers"]
    assert code == {"shop-example": {"type": "http", "url": url}}
    assert toolwire("install", "npx -y it", "--client", "cursor", "--name", "it", "--yes").status == 0
    assert json.loads((home / ".cursor/mcp.json").read_text())["mcpServers"]["it"]["args"] == ["-y", "it"]
    assert "--env is for a server" in toolwire("install", url, "--client", "cursor", "--env", "A=b", "--yes").err


@pytest.mark.parametrize("client", FILES)
@pytest.mark.parametrize("value", ["a${WORD}b", "${WORD:-x}", "$${WORD}", "${input:key}", "${", "$1$"])
def test_value_that_the_client_would_expand_is_refused(
    toolwire: Command, home: Path, server: Path, client: str, value: str
) -> None:
    started = home / "started"
    server.write_text(f"{server.read_text()}open({str(started)!r}, 'w').close()\n")
    done = toolwire("install", str(server), "--client", client, "--env", f"KEY={value}", "--yes")
    assert started.exists() is ("${" not in value), "nothing is started in vain"
    if "${" in value:
        assert (done.status, "--env KEY has '${'" in done.err) == (2, True), done
        assert not list(home.rglob("*.json"))
    else:
        assert done.status == 0, done.err
        path, member = FILES[client]
        assert json.loads((home / path).read_text())[member]["shop"]["env"] == {"KEY": value}


@pytest.mark.parametrize("client", FILES)
@pytest.mark.parametrize(
    ("option", "given", "said"),
    [
        ("--env", "${A}=x", "the name of a variable of --env has '${'"),
        ("--env", "A${=x", "the name of a variable of --env has '${'"),
        ("--name", "${HOME}", "--name has '${'"),
        ("--name", "a${b", "--name has '${'"),
    ],
)
def test_name_that_the_client_would_expand_is_refused(
    toolwire: Command, home: Path, server: Path, client: str, option: str, given: str, said: str
) -> None:
    done = toolwire("install", str(server), "--client", client, option, given, "--yes")
    assert (done.status, said in done.err) == (2, True), done
    assert not list(home.rglob("*.json"))


def test_path_and_url_that_the_client_would_expand_are_refused(toolwire: Command, home: Path, server: Path) -> None:
    folder = server.parent.rename(home / "a ${WORD}")
    for target in (
        str(folder / "server.py"),
        "npx -y ${WORD}",
        "https://${WORD}.example/mcp",
        "https://x.example/${A}",
    ):
        done = toolwire("install", target, "--client", "claude-code", "--name", "it", "--yes")
        assert done.status == 2, (target, done)
        assert not list(home.rglob("*.json"))


@pytest.mark.parametrize("url", ["http://h.example/m\x1bcp", "http://h.example/m\ncp", "http://h.example:99999/"])
@pytest.mark.parametrize("client", ["claude-desktop", "cursor"])
def test_url_that_cannot_be_requested_is_not_entered(toolwire: Command, home: Path, client: str, url: str) -> None:
    done = toolwire("install", url, "--client", client, "--yes")
    assert (done.status, "is not the URL of a server" in done.err) == (2, True), done
    assert not list(home.rglob("*.json"))


@pytest.mark.covers("J94")
def test_a_server_without_tls_is_reached_through_the_bridge(toolwire: Command, home: Path) -> None:
    url = "http://127.0.0.1:8000/mcp"
    assert toolwire("install", url, "--client", "claude-desktop", "--name", "here", "--yes").status == 0
    entry = json.loads((home / FILES["claude-desktop"][0]).read_text())["mcpServers"]["here"]
    assert entry == {"command": sys.executable, "args": ["-P", "-m", "toolwire", "bridge", url]}
    # That TLS belongs to a proxy, and how, is in the documentation.
    page = (Path(__file__).parents[2] / "docs" / "deployment.md").read_text(encoding="utf-8")
    assert "toolwire bridge" in page
    assert "proxy_pass" in page


def test_the_rest_of_the_file_stays_and_a_backup_is_kept(toolwire: Command, home: Path, server: Path) -> None:
    path = home / ".cursor" / "mcp.json"
    path.parent.mkdir()
    before = '{\n\t"theme": "d\u00fcster",\n\t"mcpServers": {"other": {"command": "x", "secret": 1e3}}\n}'
    path.write_text(before, encoding="utf-8")
    path.chmod(0o640)
    for attempt in (1, 2):
        done = toolwire("install", str(server), "--client", "cursor", "--env", f"N={attempt}", "--yes")
        backup = path.with_name(f"mcp.json.backup-{attempt}")
        assert f"The old file is kept as {backup}" in done.out
        assert "secret" not in done.out
    assert path.with_name("mcp.json.backup-1").read_text(encoding="utf-8") == before
    text = path.read_text(encoding="utf-8")
    assert '\n\t"theme": "d\u00fcster",\n' in text
    found = json.loads(text)
    assert found["mcpServers"]["other"] == {"command": "x", "secret": 1000.0}
    assert '-     "env"' in done.out
    if sys.platform != "win32":
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert len(list(path.parent.iterdir())) == 3
    assert "nothing was written" in toolwire("install", str(server), "--client", "cursor", "--env", "N=2", "--yes").out
    assert len(list(path.parent.iterdir())) == 3


@pytest.mark.parametrize("client", FILES)
@pytest.mark.parametrize(
    "number",
    ["1.0000000000000000001", "123456789012345678901234567890.5", "1e-400", "-0", "-0.0", "1.10", "1E5", "9" * 50],
)
def test_numbers_of_the_rest_of_the_file_stay_as_they_are_written(
    toolwire: Command, home: Path, client: str, number: str
) -> None:
    path, member = home / FILES[client][0], FILES[client][1]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{{"{member}": {{"old": {{"command": "x", "n": [{number}]}}}}, "n": {number}, "t": "{number}"}}')
    assert toolwire("install", "https://x.example/mcp", "--client", client, "--yes").status == 0
    found = json.loads(path.read_text(), parse_int=str, parse_float=str)
    assert (found["n"], found["t"]) == (number, number)
    assert found[member]["old"] == {"command": "x", "n": [number]}
    assert '"t": "' in path.read_text()
    assert f'"n": {number}' in path.read_text(), "it is a number still"


@pytest.mark.parametrize(
    "text",
    [
        "// comments, as VS Code allows them\n{}",
        '{"servers": {},}',
        '{"servers": {"a": 1, "a": 2}}',
        '{"servers": []}',
        '{"servers": {}, "n": 1e999}',
        "[]",
        "[" * 100_000,
        b"\xff\xfe\x00",
    ],
)
def test_a_file_that_cannot_be_read_is_left_as_it_is(
    toolwire: Command, home: Path, server: Path, text: str | bytes
) -> None:
    path = home / FILES["vscode"][0]
    path.parent.mkdir(parents=True)
    data = text if isinstance(text, bytes) else text.encode()
    path.write_bytes(data)
    done = toolwire("install", str(server), "--client", "vscode", "--yes")
    assert done.status == 1
    assert "it was left as it is. Put this into servers yourself:" in done.err
    assert json.loads("{" + done.out + "}")["shop"]["args"][-1] == str(server)
    assert path.read_bytes() == data
    assert [each.name for each in path.parent.iterdir()] == ["mcp.json"]


def test_nothing_is_written_without_consent(
    toolwire: Command, home: Path, server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = home / ".cursor" / "mcp.json"
    words = ("install", str(server), "--client", "cursor")
    assert (toolwire(*words).status, path.exists()) == (2, False)
    assert (toolwire(*words, "--dry-run").status, path.exists()) == (0, False)
    monkeypatch.setattr(keyboard, "is_there", lambda: True)
    answers: list[Any] = ["n\n", "y\n"]
    monkeypatch.setattr("sys.stdin", type("Typed", (), {"readline": lambda self: answers.pop(0)})())
    assert (toolwire(*words).status, path.exists()) == (1, False)
    assert (toolwire(*words).status, path.exists()) == (0, True)


def test_a_file_that_changes_meanwhile_is_left_alone(
    toolwire: Command, home: Path, server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = home / ".cursor" / "mcp.json"
    path.parent.mkdir()
    monkeypatch.setattr("toolwire.cli.install._agrees", lambda _: bool(path.write_text('{"new": 1}')))
    done = toolwire("install", str(server), "--client", "cursor")
    assert done.status == 1
    assert "was changed meanwhile" in done.err
    assert path.read_text() == '{"new": 1}'


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege there")
def test_a_link_stays_a_link(toolwire: Command, home: Path, server: Path) -> None:
    real = home / "dotfiles.json"
    real.write_text("{}")
    os.symlink(real, home / ".claude.json")
    assert toolwire("install", f"{server}:server", "--client", "claude-code", "--name", "s", "--yes").status == 0
    assert (home / ".claude.json").is_symlink()
    assert json.loads(real.read_text())["mcpServers"]["s"]["args"][-1] == f"{server}:server"


def test_the_file_of_a_command_is_found_from_anywhere(
    toolwire: Command, home: Path, server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(server.parent)
    assert toolwire("install", f"{sys.executable} server.py other.py", "--client", "cursor", "--yes").status == 0
    (entry,) = json.loads((home / ".cursor/mcp.json").read_text())["mcpServers"].values()
    assert entry["args"] == [str(server), "other.py"]


def test_what_does_not_start_is_not_entered(toolwire: Command, home: Path, server: Path) -> None:
    server.write_text("from toolwire import Server\ndef create_server():\n    return Server('shop')\n")
    done = toolwire("install", str(server), "--client", "cursor", "--yes")
    assert (done.status, done.out, (home / ".cursor").exists()) == (3, "", False)
    assert "'server.py' defines no Server" in done.err
    assert ":create_server; nothing was written" in done.err
    assert toolwire("install", f"{server}:create_server", "--client", "cursor", "--yes").status == 0


def test_a_server_with_a_component_directory_starts_from_anywhere(
    toolwire: Command, server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.write_text("from toolwire import Server\nserver = Server('shop', directory='components')\n")
    (server.parent / "components" / "tools").mkdir(parents=True)
    (server.parent / "components" / "tools" / "sell.py").write_text("def sell() -> str: ...\n")
    monkeypatch.chdir(server.parent)
    assert toolwire("install", "server.py", "--client", "cursor", "--yes").status == 0
    monkeypatch.chdir("/")
    assert "sell" in toolwire("list", "cursor:shop").out


def test_a_server_that_starts_in_one_folder_only_is_not_entered(
    toolwire: Command, home: Path, server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (server.parent / "name.txt").write_text("shop")
    server.write_text("from toolwire import Server\nserver = Server(open('name.txt').read())\n")
    monkeypatch.chdir(server.parent)
    done = toolwire("install", "server.py", "--client", "cursor", "--yes")
    assert done.status == 3
    assert "No such file or directory: 'name.txt'" in done.err
    assert "It starts in this folder, but clients start it in another" in done.err
    assert not (home / ".cursor").exists()


def test_a_file_that_hides_its_server_starts_itself(toolwire: Command, home: Path, server: Path) -> None:
    main = "if __name__ == '__main__':\n    create_server().run()\n"
    server.write_text(f"from toolwire import Server\ndef create_server():\n    return Server('shop')\n{main}")
    assert toolwire("install", str(server), "--client", "cursor", "--yes").status == 0
    entry = json.loads((home / ".cursor/mcp.json").read_text())["mcpServers"]["shop"]
    assert [entry["command"], *entry["args"]] == [sys.executable, "-P", "-m", "toolwire", "run", "--main", str(server)]


def test_a_module_is_entered_as_its_file(
    toolwire: Command, home: Path, server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (server.parent / "__init__.py").touch()
    monkeypatch.chdir(home)
    assert toolwire("install", "shop.server:server", "--client", "cursor", "--yes").status == 0
    entry = json.loads((home / ".cursor/mcp.json").read_text())["mcpServers"]["shop"]
    assert entry["args"] == ["-P", "-m", "toolwire", "run", f"{server}:server"]


@pytest.mark.parametrize(("lock", "name"), [("api.lock.json", "shop"), ("pets.lock.json", "pets")])
def test_lock_files_of_two_apis_are_two_servers(toolwire: Command, home: Path, lock: str, name: str) -> None:
    folder = home / "shop"
    folder.mkdir()
    (folder / "api.json").write_text(json.dumps(petstore()))
    assert toolwire("openapi", "add", str(folder / "api.json"), "--all", "--write", str(folder / lock)).status == 0
    assert toolwire("install", str(folder / lock), "--client", "cursor", "--yes").status == 0
    assert list(json.loads((home / ".cursor/mcp.json").read_text())["mcpServers"]) == [name]


def test_a_missing_file_is_named(toolwire: Command) -> None:
    done = toolwire("install", "gone.py", "--client", "cursor", "--yes")
    assert (done.status, done.err) == (2, "toolwire: there is no file 'gone.py'\n")


@pytest.mark.skipif(sys.platform == "win32", reason="there are no named pipes there")
@pytest.mark.parametrize("through", ["directly", "by a link"])
def test_special_file_as_configuration_is_refused_and_stays(
    toolwire: Command, home: Path, server: Path, through: str
) -> None:
    path = home / ".claude.json"
    special = path if through == "directly" else home / "special"
    os.mkfifo(special)
    if through == "by a link":
        path.symlink_to(special)
    done = toolwire("install", str(server), "--client", "claude-code", "--yes")
    assert done.status == 1
    assert "not a regular file" in done.err
    assert stat.S_ISFIFO(special.lstat().st_mode)
    assert "not a regular file" in toolwire("list", "claude-code:shop").err


@pytest.mark.skipif(sys.platform == "win32", reason="there are no named pipes there")
def test_special_file_that_is_put_there_meanwhile_stays(
    toolwire: Command, home: Path, server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = home / ".cursor" / "mcp.json"
    path.parent.mkdir()
    monkeypatch.setattr(client_files, "_text_of", lambda path: "")
    os.mkfifo(path)
    done = toolwire("install", str(server), "--client", "cursor", "--yes")
    assert (done.status, stat.S_ISFIFO(path.lstat().st_mode)) == (1, True)
    assert "cannot be written" in done.err


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege there")
def test_backup_is_never_written_through_a_link(toolwire: Command, home: Path, server: Path) -> None:
    path = home / ".claude.json"
    path.write_text("{}")
    (home / ".claude.json.backup-1").symlink_to(home / "other")
    assert toolwire("install", str(server), "--client", "claude-code", "--yes").status == 0
    assert (home / ".claude.json.backup-2").read_text() == "{}"
    assert not (home / "other").exists()


def test_installs_at_the_same_moment_all_write_their_entry(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / ".cursor").mkdir()
    start = threading.Barrier(6)

    def show(*_: Any) -> None:
        # Everyone has read the file now, and no one has written it.
        start.wait(timeout=20)

    monkeypatch.setattr("toolwire.cli.install._show", show)
    words = ("install", "https://shop.example/mcp", "--client", "cursor", "--yes", "--name")
    with ThreadPoolExecutor(6) as threads:
        statuses = list(threads.map(lambda number: main([*words, f"shop-{number}"]), range(6)))
    written = json.loads((home / ".cursor" / "mcp.json").read_text())["mcpServers"]
    assert (statuses, sorted(written)) == ([0] * 6, [f"shop-{number}" for number in range(6)])

"""Stores of other distributions: found by their entry points, and tested by the public contracts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.blocks import ROOT

from toolwire import Server
from toolwire.gateway.config import make_gateway, read_gateway_file
from toolwire.protocol.errors import ServerError
from toolwire.stores.by_address import open_stores
from toolwire.stores.sqlite import SqliteStores

PAGE = (ROOT / "docs" / "reference" / "stores.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r'```python title="(\w+\.py)"\n(.*?)```', PAGE, re.DOTALL))


class Site:
    """A folder of installed distributions that is on `sys.path`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(self, name: str, entry_points: dict[str, str], source: str) -> None:
        """Install a distribution of one module, with the metadata that an installer writes."""
        (self.folder / f"{name}.py").write_text(source, encoding="utf-8")
        info = self.folder / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
        lines = [f"{scheme} = {value}\n" for scheme, value in entry_points.items()]
        (info / "entry_points.txt").write_text("[toolwire.stores]\n" + "".join(lines), encoding="utf-8")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    for name in ("team_store", "broken_store", "other_store"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return Site(folder)


@pytest.fixture
def team(site: Site) -> Site:
    (entry,) = re.findall(r'\[project\.entry-points\."toolwire\.stores"\]\nteam = "(.*)"', PAGE)
    site.install("team_store", {"team": entry}, FILES["team_store.py"])
    return site


async def test_installed_store_is_named_by_its_scheme(team: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    given = Server("one", stores="team://notes").stores
    await given.kv.put("a", b"1")
    monkeypatch.setenv("TOOLWIRE_STORES", "TEAM://notes")
    assert await Server("two").stores.kv.get("a") == b"1"
    assert await Server("three", stores="team://other").stores.kv.get("a") is None


async def test_gateway_file_names_an_installed_store(team: Site, tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(
        '[gateway]\nname = "g"\nstores = "team://notes"\n[mcpServers.a]\ncommand = "true"\n', encoding="utf-8"
    )
    await open_stores("team://notes").kv.put("a", b"1")
    assert await make_gateway(read_gateway_file(file)).stores.kv.get("a") == b"1"


def test_option_of_the_command_line_names_an_installed_store(team: Site) -> None:
    command = [sys.executable, "-m", "toolwire", "tasks", "list", "--stores", "team://notes"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(team.folder)})
    # The example has no queue: its own error proves that the store was opened.
    assert (done.returncode, "These stores have no queue" in done.stderr) == (1, True), done.stderr


def test_limits_of_the_environment_reach_an_installed_store(team: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLWIRE_STORES_LIMITS", "max_items=7,max_bytes=1KiB")
    assert open_stores("team://notes").kv._limits == (7, 1024)  # type: ignore[attr-defined]
    monkeypatch.setenv("TOOLWIRE_STORES_LIMITS", "max_streams=7")
    with pytest.raises(ServerError, match=r"cannot be called with an address and the limits max_streams"):
        open_stores("team://notes")


def test_installed_distributions_are_searched_for_unknown_schemes_alone(
    team: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import sys; from toolwire.stores.by_address import open_stores\n"
        "open_stores(sys.argv[1]); open_stores('redis://localhost')\n"
        "print('importlib.metadata' in sys.modules, 'team_store' in sys.modules)\n"
        "open_stores('team://notes'); print('team_store' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": str(team.folder)}
    command = [sys.executable, "-c", code, str(tmp_path / "state.db")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    *_, before, after = done.stdout.splitlines()
    assert before.endswith("False") and after == "True"


def test_unknown_scheme_lists_the_known_ones(team: Site) -> None:
    with pytest.raises(ServerError) as raised:
        open_stores("teem://user:hunter2@notes")
    assert str(raised.value) == (
        "No store has addresses that begin with teem://. Use one of redis://, rediss://, unix://, redis+sentinel://, "
        "rediss+sentinel://, team://, or the path of a SQLite file"
    )


def test_two_distributions_with_one_scheme_are_refused(team: Site) -> None:
    team.install("other_store", {"team": "other_store:open"}, "")
    with pytest.raises(ServerError, match="Several installed stores have addresses that begin with team://") as raised:
        open_stores("team://notes")
    assert "team_store:open_team of team_store" in str(raised.value)
    assert "other_store:open of other_store" in str(raised.value)


BROKEN = {
    "missing": ("missing_module:open", "", "cannot be loaded: No module named 'missing_module'"),
    "attribute": ("broken_store:open", "", "cannot be loaded: module 'broken_store' has no attribute 'open'"),
    "fails": ("broken_store:open", "1 / 0", "cannot be loaded: division by zero"),
    "text": ("broken_store:open", "open = 'text'", "is not a class or a function"),
    "no-address": ("broken_store:open", "def open(): ...", "cannot be called with an address"),
    "no-stores": ("broken_store:open", "def open(address): ...", "makes an object that is not a toolwire.stores"),
    "no-kv": ("broken_store:open", "Stores(object(), log, bus)", "has no KV in its kv: get, put, add, delete"),
    "no-log": ("broken_store:open", "Stores(kv, bus, bus)", "has no Log in its log: append, read_after, delete"),
    "no-bus": ("broken_store:open", "Stores(kv, log, None)", "has no Bus in its bus: publish, subscribe missing"),
    "no-queue": ("broken_store:open", "Stores(kv, log, bus, kv)", "has no Queue in its queue: change, take, held"),
}  # fmt: skip


@pytest.mark.parametrize(("entry", "source", "text"), BROKEN.values(), ids=BROKEN)
def test_broken_entry_point_is_named(site: Site, entry: str, source: str, text: str) -> None:
    if source.startswith("Stores("):
        source = (
            "from toolwire.stores import MemoryBus, MemoryKV, MemoryLog, Stores\n"
            f"kv, log, bus = MemoryKV(), MemoryLog(), MemoryBus()\ndef open(address): return {source}\n"
        )
    site.install("broken_store", {"broken": entry}, source)
    with pytest.raises(ServerError) as raised:
        open_stores("broken://user:hunter2@host")
    assert f"The store of broken:// ({entry} of broken_store) {text}" in str(raised.value)
    assert "hunter2" not in str(raised.value)


def test_error_of_the_store_itself_passes_through(site: Site) -> None:
    source = "from toolwire.errors import ServerError\ndef open(address): raise ServerError('no such team')\n"
    site.install("broken_store", {"broken": "broken_store:open"}, source)
    with pytest.raises(ServerError, match=r"^no such team$"):
        open_stores("broken://host")


@pytest.mark.slow
def test_contracts_run_in_the_tests_of_an_author(team: Site, tmp_path: Path) -> None:
    (tmp_path / "test_team_store.py").write_text(FILES["test_team_store.py"], encoding="utf-8")
    # Neither pytest-asyncio nor the options of this repository are needed.
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\nfilterwarnings = error\n")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:asyncio",
        "-p",
        "no:xdist",
        "-p",
        "no:cacheprovider",
        ".",
    ]
    environment = {**os.environ, "PYTHONPATH": str(team.folder)}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "17 passed" in done.stdout


@pytest.mark.slow
def test_contracts_find_a_store_that_forgets(team: Site, tmp_path: Path) -> None:
    wrong = FILES["test_team_store.py"].replace("return Stores(TableKV(", "return Stores(Forgetful(")
    wrong += "\nclass Forgetful(TableKV):\n    async def expire(self, key, ttl):\n        return True\n"
    (tmp_path / "test_team_store.py").write_text(wrong, encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:asyncio",
        "-p",
        "no:xdist",
        "-p",
        "no:cacheprovider",
        ".",
    ]
    environment = {**os.environ, "PYTHONPATH": str(team.folder)}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert done.returncode == 1
    assert "test_values_expire_at_their_time" in done.stdout


@pytest.mark.parametrize("mark", [":/", ":", ";//", " ://", "; //", ":\\\\"])
@pytest.mark.parametrize("scheme", ["redis", "REDISS", " unix", "redis+sentinel", "team"])
def test_address_with_a_mistyped_scheme_is_refused_and_not_repeated(team: Site, scheme: str, mark: str) -> None:
    with pytest.raises(ServerError) as raised:
        open_stores(f"{scheme}{mark}user:hunter2@notes/0")
    assert "hunter2" not in str(raised.value) and "notes" not in str(raised.value)
    # With a blank before the mark it is taken for an address, whose error shows the form of a Redis.
    assert ("redis" if mark == " ://" else f"{scheme.strip().lower()}") + "://" in str(raised.value)


@pytest.mark.parametrize(
    "path", ["C:\\data\\state.db", "c:/data/state.db", "c:state.db", "other:state.db", "./redis:state.db", "redis.db"]
)
def test_path_with_a_colon_stays_a_path(team: Site, path: str) -> None:
    assert isinstance(open_stores(path), SqliteStores)


def test_mistyped_store_of_a_gateway_file_is_refused_and_not_repeated(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(
        '[gateway]\nname = "g"\nstores = "redis:/user:hunter2@notes"\n[mcpServers.a]\ncommand = "true"\n',
        encoding="utf-8",
    )
    with pytest.raises(ServerError, match="begins with redis without a ://") as raised:
        make_gateway(read_gateway_file(file))
    assert "hunter2" not in str(raised.value)

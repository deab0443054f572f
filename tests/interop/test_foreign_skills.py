"""Skills with the TypeScript SDK: its client reads ours, and our client reads its catalogue, byte for byte."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from tests.interop import peers
from tests.interop.generated_skills import make_skills
from tests.interop.test_foreign_http_servers import running
from tests.ports import free_port

from toolwire import Client, Server
from toolwire.client.skills import LoadedSkill

# Two revisions, and how the TypeScript client is told which one to speak.
MODES = {"2026-07-28": "auto", "2025-11-25": "legacy"}


def uris(skills: dict[str, dict[str, bytes]]) -> set[str]:
    return {f"skill://{path}/SKILL.md" for path in skills}


SERVE = """
import sys
from toolwire import Server

server = Server("ours")
server.skills(sys.argv[1])
server.run("http", port=int(sys.argv[2]))
"""


async def driven(url: str, mode: str) -> dict[str, Any]:
    node, script = peers.needed_node(), peers.node_script("drive_skills.mjs")
    process = await asyncio.create_subprocess_exec(
        str(node), str(script), url, mode, cwd=peers.node_folder(), stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(60):
        said, _ = await process.communicate()
    assert process.returncode == 0
    report: dict[str, Any] = json.loads(said)
    return report


@pytest.mark.parametrize("revision", MODES)
async def test_the_typescript_client_reads_our_skills(revision: str, tmp_path: Path) -> None:
    skills, port = make_skills(tmp_path), free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    async with running([sys.executable, "-c", SERVE, str(tmp_path), str(port)], port), Client(url) as client:
        report = await driven(url, MODES[revision])
        ours = {each.uri: each.frontmatter for each in await client.skills.list()}
    assert report["refused"] == {}
    assert set(report["skills"]) == uris(skills) == set(ours)
    for path, files in skills.items():
        read = report["skills"][f"skill://{path}/SKILL.md"]
        assert read["frontmatter"] == read["entry"] == ours[f"skill://{path}/SKILL.md"]
        found = {uri: base64.b64decode(data) for uri, data in read["files"].items()}
        assert found[f"skill://{path}/SKILL.md"] == files["SKILL.md"]
        assert found[f"skill://{path}/assets/a%20b%20(1)%20%C3%BCn%C3%AF.txt"] == b"a name with spaces"
        assert found[f"skill://{path}/latin.txt"] == files["latin.txt"]
        assert {*files.values()} <= {*found.values()}
    assert report["got"] == {uri: uri for uri in ours}
    assert report["directory"]


def copy_shipped_skills(folder: Path) -> set[str]:
    """Copy the skills that packages of this environment and of the peers bring along; return the names of them."""
    places = [Path(sysconfig.get_path("purelib")), *peers.FOLDER.glob("*/lib/python*/site-packages")]
    found = {file.parent.name: file.parent for place in places for file in sorted(place.rglob("SKILL.md"))}
    for name, skill in found.items():
        shutil.copytree(skill, folder / name)
    return set(found)


async def test_skills_that_packages_ship_are_the_same_to_both(tmp_path: Path) -> None:
    names = copy_shipped_skills(tmp_path)
    assert "fastapi" in names
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    async with running([sys.executable, "-c", SERVE, str(tmp_path), str(port)], port), Client(url) as client:
        report = await driven(url, "auto")
        listed = await client.skills.list()
        assert {each.uri.split("/")[-2] for each in listed} == names
        assert set(report["skills"]) == {each.uri for each in listed}
        for each in listed:
            skill = await client.skills.load(each)
            theirs = report["skills"][each.uri]["files"]
            for file in skill.files.values():
                assert (await skill.read(file.uri)).data == base64.b64decode(theirs[file.uri])


@pytest.mark.parametrize("revision", MODES)
async def test_our_client_reads_the_typescript_catalogue(revision: str, tmp_path: Path) -> None:
    node, script = peers.needed_node(), peers.node_script("serve_skills.mjs")
    skills = make_skills(tmp_path)
    port = free_port()
    async with (
        running([str(node), str(script), str(tmp_path), str(port)], port, cwd=peers.node_folder()),
        Client(f"http://127.0.0.1:{port}/mcp", revision=revision) as client,
    ):
        listed = await client.skills.list()
        assert listed.refused == []
        assert {each.uri for each in listed} == uris(skills)
        for each in listed:
            skill = await client.skills.load(each)
            await assert_equal(skill, skills)
            assert (await client.skills.get(each.uri)).entry == each.entry


async def assert_equal(skill: LoadedSkill, skills: dict[str, dict[str, bytes]]) -> None:
    path = skill.uri.removeprefix("skill://").removesuffix("/SKILL.md")
    for file, data in skills[path].items():
        read = await skill.read(file)
        assert (read.data, read.verified) == (data, True)


@pytest.mark.parametrize("revision", MODES)
async def test_both_sides_make_the_same_entries(revision: str, tmp_path: Path) -> None:
    """The same folder, served by both: the same URIs, digests, sizes and frontmatter."""
    node, script = peers.needed_node(), peers.node_script("serve_skills.mjs")
    make_skills(tmp_path)
    server = Server("ours")
    server.skills(tmp_path)
    port = free_port()
    async with (
        running([str(node), str(script), str(tmp_path), str(port)], port, cwd=peers.node_folder()),
        Client(f"http://127.0.0.1:{port}/mcp", revision=revision) as theirs,
        Client(server) as ours,
    ):
        one, other = [
            {each.uri: comparable(each.entry.to_dict()) for each in await client.skills.list()}
            for client in (theirs, ours)
        ]
    assert one == other


def comparable(entry: dict[str, Any]) -> dict[str, Any]:
    return {**entry, "resources": sorted(entry["resources"], key=lambda file: str(file["uri"]))}


GATEWAY = """
import sys
from toolwire import Gateway

port, revision, *urls = sys.argv[1:]
gateway = Gateway("front")
for number, url in enumerate(urls):
    gateway.add(f"back{number}", url, revision=revision, list_timeout=60)
gateway.run("http", port=int(port))
"""


@pytest.mark.parametrize("back", MODES)
@pytest.mark.parametrize("front", MODES)
async def test_two_typescript_servers_with_the_same_skills_stay_apart_behind_a_gateway(
    front: str, back: str, tmp_path: Path
) -> None:
    node, script = peers.needed_node(), peers.node_script("serve_skills.mjs")
    skills, ports = make_skills(tmp_path), [free_port(), free_port()]
    gateway = free_port()
    urls = [f"http://127.0.0.1:{port}/mcp" for port in ports]
    serve = [[str(node), str(script), str(tmp_path), str(port)] for port in ports]
    async with (
        running(serve[0], ports[0], cwd=peers.node_folder()),
        running(serve[1], ports[1], cwd=peers.node_folder()),
        running([sys.executable, "-c", GATEWAY, str(gateway), back, *urls], gateway),
    ):
        report = await driven(f"http://127.0.0.1:{gateway}/mcp", MODES[front])
    assert report["refused"] == {}
    assert set(report["skills"]) == uris(skills) | {f"skill://back1/{path}/SKILL.md" for path in skills}
    assert report["got"] == {uri: uri for uri in report["skills"]}
    for path, files in skills.items():
        for root in (f"skill://{path}", f"skill://back1/{path}"):
            read = report["skills"][f"{root}/SKILL.md"]["files"]
            assert all(uri.startswith(f"{root}/") for uri in read)
            assert {*files.values()} <= {base64.b64decode(data) for data in read.values()}
    assert report["directory"]

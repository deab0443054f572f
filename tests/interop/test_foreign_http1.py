"""`toolwire.http1` as a library of its own: our client end against nginx, uvicorn and Node, our server end against
curl, aiohttp and Node's fetch. None of it is about MCP."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.http1.echo_application import LARGE, PIECES, served
from tests.interop import peers
from tests.ports import free_port

from toolwire.http1.pool import HttpPool

CLIENT_EXPECTED = {
    "small": [200, 3],
    "large": [200, 1_000_000],
    "chunked": [200, 50_000],
    "stream": [200, PIECES],
    "download": [200, LARGE],
    "empty": [204, 0],
    "head": [200, LARGE],
    "missing": [404, 12],
    "together": [200, sum(range(40))],
}


async def output(*command: str | Path, stdin: bytes = b"") -> bytes:
    process = await asyncio.create_subprocess_exec(
        *map(str, command),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate(stdin)
    assert process.returncode == 0, err.decode()
    return out


# --- Our server end ---


async def test_aiohttp_is_served() -> None:
    python = peers.needed("aiohttp-3.14.5").python
    async with served() as url:
        told = json.loads(await output(python, Path(__file__).parent / "drive_aiohttp.py", url))
    assert told.pop("expect") == [200, 100_000]
    assert told == CLIENT_EXPECTED


async def test_the_fetch_of_node_is_served() -> None:
    node = peers.needed_node()
    async with served() as url:
        told = json.loads(await output(node, peers.node_script("drive_fetch.mjs"), url))
    assert told == CLIENT_EXPECTED


CURL = {
    "a body with its length": (["--data-binary", "abc"], b"", "/echo", 200),
    "a body in chunks": (["-T", "-", "-X", "POST"], b"y" * 50_000, "/echo", 200),
    "a body that waits for 100 Continue": (
        ["-H", "Expect: 100-continue", "--data-binary", "@-"],
        b"w" * 70_000,
        "/echo",
        200,
    ),
    "HTTP/1.0": (["--http1.0", "--data-binary", "abc"], b"", "/echo", 200),
    "a connection that is closed": (["-H", "Connection: close", "--data-binary", "abc"], b"", "/echo", 200),
    "a stream": ([], b"", "/stream", 200),
    "a stream over HTTP/1.0": (["--http1.0"], b"", "/stream", 200),
    "a large answer": ([], b"", "/large", 200),
    "only the head": (["--head"], b"", "/large", 200),
    "no content": ([], b"", "/empty", 204),
    "an address that does not exist": ([], b"", "/missing", 404),
}


@pytest.mark.parametrize("case", CURL)
async def test_curl_is_served(case: str) -> None:
    options, stdin, path, status = CURL[case]
    curl = ["curl", "--silent", "--show-error", "--write-out", "\n%{http_code} %{num_connects}", *options]
    async with served() as url:
        got = await output(*curl, url + path, stdin=stdin)
    body, _, last = got.rpartition(b"\n")
    assert int(last.split()[0]) == status
    if path == "/echo":
        sent = stdin or b"abc"
        assert json.loads(body) == {"method": "POST", "bytes": len(sent), "sha256": hashlib.sha256(sent).hexdigest()}
    elif path == "/stream":
        assert body.count(b"piece") == PIECES
    elif case == "a large answer":
        assert len(body) == LARGE


async def test_curl_keeps_its_connection() -> None:
    async with served() as url:
        addresses = [url + path for path in ("/empty", "/stream", "/missing", "/large", "/empty")]
        report = ["--write-out", "\n%{num_connects}\n", "--output", "/dev/null"]
        got = await output("curl", "--silent", *report * len(addresses), *addresses)
    assert [int(line) for line in got.split()] == [1, 0, 0, 0, 0]


# --- Our client end ---

NGINX = """
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 512; }}
http {{
  access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  client_max_body_size 2m; keepalive_requests 3; gzip on; gzip_types text/plain; gzip_min_length 1000;
  server {{
    listen 127.0.0.1:{port};
    location = /moved {{ return 307 /echo; }}
    location = /packed {{ root {folder}; types {{}} default_type text/plain; }}
    location = /close {{ add_header connection close; return 200 "bye"; }}
    location / {{ proxy_pass {behind}; proxy_http_version 1.1; proxy_set_header Connection ""; }}
  }}
}}
"""


@asynccontextmanager
async def nginx(folder: Path) -> AsyncIterator[str]:
    """Serve the same addresses through nginx, in front of uvicorn with h11."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if not program and not os.environ.get("TOOLWIRE_REQUIRE_NGINX"):
        pytest.skip("there is no nginx here: install Debian's nginx-light")
    assert program, "there is no nginx here"
    (folder / "packed").write_text("x" * LARGE)
    async with served("h11") as behind:
        port = free_port()
        (folder / "nginx.conf").write_text(NGINX.format(folder=folder, port=port, behind=behind))
        process = await asyncio.create_subprocess_exec(program, "-c", str(folder / "nginx.conf"), "-p", str(folder))
        try:
            await listening(port)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            await process.wait()


@asynccontextmanager
async def node_server(folder: Path) -> AsyncIterator[str]:
    node = peers.needed_node()
    script = peers.node_script("serve_plain_http.mjs")
    process = await asyncio.create_subprocess_exec(str(node), str(script), stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        port = int(await process.stdout.readline())
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def uvicorn_httptools(folder: Path) -> AsyncIterator[str]:
    async with served("httptools") as url:
        yield url


@asynccontextmanager
async def uvicorn_h11(folder: Path) -> AsyncIterator[str]:
    async with served("h11") as url:
        yield url


async def listening(port: int) -> None:
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.02)
        else:
            writer.close()
            return


SERVERS: dict[str, Any] = {
    "nginx": nginx,
    "Node": node_server,
    "uvicorn with httptools": uvicorn_httptools,
    "uvicorn with h11": uvicorn_h11,
}


@pytest.mark.parametrize("server", SERVERS)
async def test_our_client_uses(server: str, tmp_path: Path) -> None:
    async with SERVERS[server](tmp_path) as url, HttpPool() as pool:

        async def got(method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
            async with await pool.request(method, url + path, body=body) as response:
                return response.status, await response.read(LARGE)

        for size in (0, 3, 100_000, 1_000_000):
            body = b"b" * size
            status, answer = await got("POST", "/echo", body)
            told = {"method": "POST", "bytes": size, "sha256": hashlib.sha256(body).hexdigest()}
            assert (status, json.loads(answer)) == (200, told)
        status, answer = await got("GET", "/stream")
        assert (status, answer.count(b"piece")) == (200, PIECES)
        status, answer = await got("GET", "/large")
        assert (status, len(answer)) == (200, LARGE)
        assert await got("GET", "/empty") == (204, b"")
        assert await got("HEAD", "/large") == (200, b"")
        assert await got("GET", "/missing") == (404, b"nothing here")
        together = await asyncio.gather(*[got("POST", "/echo", b"q" * n) for n in range(40)])
        assert sum(json.loads(answer)["bytes"] for _, answer in together) == sum(range(40))


@pytest.mark.parametrize("server", ["nginx", "Node"])
async def test_our_client_follows_unpacks_and_starts_over(server: str, tmp_path: Path) -> None:
    async with SERVERS[server](tmp_path) as url, HttpPool() as pool:
        async with await pool.request("POST", url + "/moved", body=b"abc") as response:
            assert json.loads(await response.read(10_000))["bytes"] == 3
        async with await pool.request("GET", url + "/packed") as response:
            assert response.header("content-encoding") == "gzip"
            assert len(await response.read(LARGE)) == LARGE
        # The server closes after the answer, or after three requests: nothing is lost, a new connection is made.
        for _ in range(10):
            async with await pool.request("GET", url + "/close") as response:
                assert await response.read(100) == b"bye"
        if server == "nginx":
            async with await pool.request("POST", url + "/echo", body=b"b" * 3_000_000) as response:
                assert response.status == 413

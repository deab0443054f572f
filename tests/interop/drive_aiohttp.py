"""Sends requests with aiohttp to the server whose address is the argument, and prints what came back as JSON."""

import asyncio
import json
import sys

import aiohttp


async def pieces(count):
    for _ in range(count):
        yield b"y" * 1000


async def main(url):
    told = {}
    async with aiohttp.ClientSession() as session:
        for name, body in (("small", b"abc"), ("large", b"z" * 1_000_000), ("chunked", pieces(50))):
            async with session.post(url + "/echo", data=body) as got:
                told[name] = [got.status, (await got.json())["bytes"]]
        async with session.post(url + "/echo", data=b"w" * 100_000, expect100=True) as got:
            told["expect"] = [got.status, (await got.json())["bytes"]]
        async with session.get(url + "/stream") as got:
            told["stream"] = [got.status, (await got.read()).count(b"piece")]
        async with session.get(url + "/large") as got:
            told["download"] = [got.status, len(await got.read())]
        async with session.get(url + "/empty") as got:
            told["empty"] = [got.status, len(await got.read())]
        async with session.head(url + "/large") as got:
            told["head"] = [got.status, int(got.headers["content-length"])]
        async with session.get(url + "/missing") as got:
            told["missing"] = [got.status, len(await got.read())]
        answers = await asyncio.gather(*[session.post(url + "/echo", data=b"q" * n) for n in range(40)])
        told["together"] = [200, sum([(await each.json())["bytes"] for each in answers])]
    print(json.dumps(told))


asyncio.run(main(sys.argv[1]))

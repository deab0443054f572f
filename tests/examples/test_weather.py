"""The weather, against a local stand-in that answers as Open-Meteo does."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import ModuleType
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from toolwire import Client, Server, testing

DAILY = {
    "time": ["2026-05-01", "2026-05-02"],
    "weather_code": [0, 61],
    "temperature_2m_min": [3.1, 4.0],
    "temperature_2m_max": [12.5, 9.9],
    "precipitation_sum": [None, 7.2],
}
PLACE = {"id": 1, "name": "Bergen", "country": "Norway", "latitude": 60.39, "longitude": 5.32}


class Service(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        status, answer = 200, b"{}"
        if parts.path == "/v1/search" and query["name"].startswith("Berg"):
            answer = json.dumps({"results": [PLACE][: int(query["count"])]}).encode()
        elif parts.path == "/v1/forecast" and query["latitude"] == "60.39":
            days = int(query["forecast_days"])
            answer = json.dumps({"daily": {name: values[:days] for name, values in DAILY.items()}}).encode()
        elif parts.path == "/v1/forecast":
            status, answer = (400, b"") if query["latitude"] == "1.0" else (200, b"<html>")
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server(example: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with HTTPServer(("127.0.0.1", 0), Service) as service:
        address = f"http://127.0.0.1:{service.server_address[1]}"
        monkeypatch.setenv("OPEN_METEO", address)
        monkeypatch.setenv("OPEN_METEO_PLACES", address)
        thread = threading.Thread(target=service.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield example("weather").server
        service.shutdown()
        thread.join()


async def test_a_place_and_its_forecast(server: Server) -> None:
    async with Client(server) as client:
        (place,) = await client.call_tool("find_places", {"name": "Bergen"}, returns=list[dict[str, Any]])
        assert (place["name"], place["country"]) == ("Bergen", "Norway")
        assert await client.call_tool("find_places", {"name": "Nowhere"}, returns=list[Any]) == []
        where = {"latitude": place["latitude"], "longitude": place["longitude"]}
        days = await client.call_tool("get_forecast", {**where, "days": 2}, returns=list[dict[str, Any]])
        assert [(day["sky"], day["high_c"], day["rain_mm"]) for day in days] == [
            ("clear", 12.5, 0.0),
            ("rain", 9.9, 7.2),
        ]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"latitude": 1.0, "longitude": 0}, "refused the request (status 400)"),
        ({"latitude": 2.0, "longitude": 0}, "cannot be read"),
        ({"latitude": 91, "longitude": 0}, "at most 90"),
        ({"latitude": 1, "longitude": 0, "days": 99}, "at most 16"),
    ],
)
async def test_what_goes_wrong_is_told_to_the_model(server: Server, arguments: dict[str, Any], says: str) -> None:
    async with Client(server) as client:
        result = await client.call_tool("get_forecast", arguments)
        assert result.is_error
        assert says in result.text


async def test_a_service_that_is_not_there(
    example: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPEN_METEO_PLACES", "http://127.0.0.1:1")
    async with Client(example("weather").server) as client:
        result = await client.call_tool("find_places", {"name": "Bergen"})
        assert "cannot be reached; try again" in result.text


async def test_hostile_callers(server: Server) -> None:
    assert await testing.attack(server) == []

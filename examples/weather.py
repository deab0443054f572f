"""Weather from Open-Meteo, a free HTTP interface without keys: find a place, then its forecast.

Run it with `toolwire run examples/weather.py`. OPEN_METEO and OPEN_METEO_PLACES name other servers of the same
interface, your own mirror say.
"""

import json
import os
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from msgspec import Meta

from toolwire import Server, ToolError

server = Server("weather", version="1.0.0", instructions="Forecasts for places all over the world.")

PLACES = os.environ.get("OPEN_METEO_PLACES", "https://geocoding-api.open-meteo.com")
FORECASTS = os.environ.get("OPEN_METEO", "https://api.open-meteo.com")
LARGEST = 1_000_000
SKIES = {
    0: "clear",
    1: "mainly clear",
    2: "partly cloudy",
    3: "overcast",
    45: "fog",
    61: "rain",
    71: "snow",
    95: "storm",
}


@dataclass
class Place:
    name: str
    country: str
    latitude: float
    longitude: float


@dataclass
class Day:
    date: str
    sky: str
    low_c: float
    high_c: float
    rain_mm: float


def fetch(base: str, path: str, **query: Any) -> Any:
    """One request; what goes wrong is told to the model in words that it can act on."""
    request = Request(f"{base}{path}?{urlencode(query)}", headers={"User-Agent": "toolwire-example/1.0"})
    try:
        with urlopen(request, timeout=10) as response:
            return json.loads(response.read(LARGEST))
    except HTTPError as error:
        error.close()
        raise ToolError(f"The weather service refused the request (status {error.code}).") from error
    except (URLError, TimeoutError) as error:
        raise ToolError("The weather service cannot be reached; try again in a minute.") from error
    except ValueError as error:
        raise ToolError("The weather service sent something that cannot be read.") from error


@server.tool(annotations={"readOnlyHint": True, "openWorldHint": True})
def find_places(name: str, limit: Annotated[int, Meta(ge=1, le=20)] = 5) -> list[Place]:
    """Find places by name. Returns those that fit best, with their coordinates.

    Args:
        name: The name of a town or village, such as "Bergen".
        limit: How many places at most.
    """
    found = fetch(PLACES, "/v1/search", name=name, count=limit)
    return [
        Place(one["name"], one.get("country", ""), one["latitude"], one["longitude"])
        for one in found.get("results", [])
    ]


@server.tool(annotations={"readOnlyHint": True, "openWorldHint": True})
def get_forecast(
    latitude: Annotated[float, Meta(ge=-90, le=90)],
    longitude: Annotated[float, Meta(ge=-180, le=180)],
    days: Annotated[int, Meta(ge=1, le=16)] = 3,
) -> list[Day]:
    """Forecast for a place. Returns a row for each day, today first.

    Args:
        latitude: Degrees north; `find_places` knows them.
        longitude: Degrees east.
        days: How many days.
    """
    wanted = "weather_code,temperature_2m_min,temperature_2m_max,precipitation_sum"
    daily = fetch(
        FORECASTS,
        "/v1/forecast",
        latitude=latitude,
        longitude=longitude,
        daily=wanted,
        forecast_days=days,
        timezone="auto",
    )["daily"]
    rows = zip(daily["time"], *(daily[name] for name in wanted.split(",")), strict=True)
    return [Day(date, SKIES.get(code, "mixed"), low, high, rain or 0.0) for date, code, low, high, rain in rows]


@server.prompt
def pack_for(city: str, days: str = "3") -> str:
    """Ask what to pack for a trip."""
    return f"Look up the forecast for {city} for {days} days and tell me in two sentences what clothes to pack."


if __name__ == "__main__":
    server.run()

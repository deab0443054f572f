"""An agent with three servers, without a key: a scripted model asks, Toolwire answers.

Run it with `python examples/agent.py`. Two servers are objects of this process, and one is a process of its own. The
scripted model answers in the JSON of Anthropic's Messages. With a key, `ask` would be
`anthropic.AsyncAnthropic().messages.create(model=..., max_tokens=2_000, **request)`, and nothing else would change.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

from toolwire import Server
from toolwire.agents import Toolset
from toolwire.client import ToolCall
from toolwire.types import ToolAnnotations

READS = ToolAnnotations(read_only_hint=True)

weather = Server("weather")
calendar = Server("calendar")
HELLO = Path(__file__).with_name("hello.py")


@weather.tool(annotations=READS)
async def forecast(city: str) -> dict[str, Any]:
    """Say what the weather of a city will be tomorrow."""
    return {"city": city, "sky": "sunny", "celsius": 21}


@calendar.tool(annotations=READS)
async def list_meetings(day: str) -> list[str]:
    """List the meetings of a day."""
    return ["10:00 planning", "14:00 review"]


@calendar.tool
async def cancel_meeting(title: str) -> str:
    """Cancel a meeting, and tell everybody who was invited."""
    return f"{title} is cancelled"


def approve(call: ToolCall) -> bool | str:
    """Let the model read everything, and change nothing."""
    return call.annotations.read_only_hint is True or call.server == "hello" or "the user has to confirm this"


# What the model says in each turn: calls, each with a server's tool and arguments.
SCRIPT: list[list[tuple[str, dict[str, Any]]]] = [
    [("weather_forecast", {"city": "Oslo"}), ("calendar_list_meetings", {"day": "tomorrow"})],
    [("calendar_cancel_meeting", {"title": "review"}), ("hello_add", {"a": 20, "b": 22})],
    [],
]


async def ask(request: dict[str, Any]) -> dict[str, Any]:
    """Answer as a model would, from the script."""
    turn = sum(message["role"] == "assistant" for message in request["messages"])
    blocks: list[dict[str, Any]] = [
        {"type": "tool_use", "id": f"call_{turn}_{number}", "name": name, "input": arguments}
        for number, (name, arguments) in enumerate(SCRIPT[turn])
    ]
    blocks = blocks or [{"type": "text", "text": "Sunny, two meetings; the review stays, and 20 + 22 = 42."}]
    return {"type": "message", "role": "assistant", "content": blocks, "stop_reason": "tool_use"}


async def main() -> None:
    messages: list[Any] = [{"role": "user", "content": "Plan my day tomorrow."}]
    async with Toolset(weather, calendar, {"hello": HELLO}, approve=approve) as tools:
        while True:
            response = await ask({"messages": messages, "tools": await tools.definitions("anthropic")})
            answers = await tools.answer(response)
            if not answers:
                break
            messages += answers
            for block in answers[1]["content"]:
                print(block["tool_use_id"], json.dumps(block["content"]))
        print(response["content"][0]["text"])
        for server, usage in tools.usage.items():
            print(f"{server}: {usage.calls} calls, {usage.errors} not made, {usage.result_tokens} tokens")


if __name__ == "__main__":
    asyncio.run(main())

"""One server that shows every feature. It is also what the official conformance suite is run against.

Start it with `python examples/everything.py [port]` and connect to http://localhost:8000/mcp, or with
`toolwire run examples/everything.py` over stdio.
"""

import asyncio
import base64
import struct
import sys
import zlib
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec

from toolwire import (
    Audio,
    Context,
    Image,
    Message,
    Prompt,
    ProtocolError,
    Resource,
    Server,
    Text,
    Tool,
    ToolError,
    types,
)
from toolwire.errors import NotSupported
from toolwire.server.binding import Header

server = Server(
    "everything",
    version="1.0.0",
    title="Everything",
    description="Every feature of Toolwire in one server",
    instructions="Call any tool; each says what it shows.",
)


# Two skills, one inside the other, on a page each.
server.skills("skills", page_size=1)


def _png() -> bytes:
    """One red pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"\x00\xff\x00\x00")) + chunk(b"IEND", b"")


def _wav() -> bytes:
    """A tenth of a second of silence."""
    samples = bytes(800)
    header = struct.pack("<4sI4s4sIHHIIHH", b"RIFF", 36 + len(samples), b"WAVE", b"fmt ", 16, 1, 1, 8000, 8000, 1, 8)
    return header + struct.pack("<4sI", b"data", len(samples)) + samples


PIXEL, SILENCE = _png(), _wav()

# --- Results of every kind -------------------------------------------------------------------------------------------


@server.tool
def about() -> str:
    """Says what this server is."""
    return "A server that shows every feature of Toolwire."


@server.tool
def test_simple_text() -> str:
    """Returns a text."""
    return "This is a simple text response for testing."


@server.tool
def test_image_content() -> Image:
    """Returns an image."""
    return Image(data=PIXEL, mime_type="image/png")


@server.tool
def test_audio_content() -> Audio:
    """Returns a sound."""
    return Audio(data=SILENCE, mime_type="audio/wav")


def _embedded(uri: str, text: str) -> types.EmbeddedResource:
    return types.EmbeddedResource(types.ResourceContents(uri=uri, mime_type="text/plain", text=text))


@server.tool
def test_embedded_resource() -> types.EmbeddedResource:
    """Returns a resource inside the result."""
    return _embedded("test://embedded-resource", "This is an embedded resource content.")


@server.tool
def test_multiple_content_types() -> list[Any]:
    """Returns a text, an image and a resource."""
    return [
        Text("Multiple content types test:"),
        Image(data=PIXEL, mime_type="image/png"),
        _embedded("test://mixed-content-resource", "Mixed content."),
    ]


@server.tool
def test_error_handling() -> str:
    """Fails in a way that the model can see."""
    raise ToolError("This tool intentionally returns an error for testing")


# --- Reports ---------------------------------------------------------------------------------------------------------


@server.tool
async def test_tool_with_logging(ctx: Context) -> str:
    """Logs three messages while it runs."""
    for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.info(text)
        await asyncio.sleep(0.05)
    return "Logged three messages."


@server.tool
async def test_logging_tool(ctx: Context) -> str:
    """Logs one message, to clients that asked for messages."""
    await ctx.info("A message for whoever asked")
    return "Logged."


@server.tool
async def test_tool_with_progress(ctx: Context) -> str:
    """Reports progress in three steps."""
    for step in (0, 50, 100):
        await ctx.progress(step, total=100, message=f"{step} of 100")
        await asyncio.sleep(0.05)
    return f"Reported progress for the token {ctx.progress_token}."


@server.tool
async def test_reconnection(ctx: Context) -> str:
    """Closes its own stream and finishes a little later; the client comes back for the result."""
    await ctx.close_stream(retry_ms=100)
    await asyncio.sleep(0.2)
    return "Reconnection test completed."


# --- Questions -------------------------------------------------------------------------------------------------------


@server.tool
async def test_sampling(prompt: str, ctx: Context) -> str:
    """Asks the client's model."""
    answer = await ctx.sample(prompt, max_tokens=100)
    return f"LLM response: {_text_of(answer)}"


@dataclass
class Contact:
    username: Annotated[str, "Your name"]
    email: Annotated[str, "Your address"]


@server.tool
async def test_elicitation(message: str, ctx: Context) -> str:
    """Asks the user for a name and an address."""
    answer = await ctx.elicit(message, Contact)
    return f"User response: {answer.action}, {answer.data}"


@dataclass
class Defaults:
    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: Literal["active", "inactive", "pending"] = "active"
    verified: bool = True


@server.tool
async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
    """Asks a question whose fields have defaults."""
    answer = await ctx.elicit("Please review and update the form fields", Defaults)
    return f"Elicitation completed: {answer.action}, {answer.data}"


@server.tool
async def test_elicitation_sep1330_enums(ctx: Context) -> str:
    """Asks a question with every form of choice, by a form written by hand."""
    form = {
        "type": "object",
        "properties": {
            "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
            "titledSingle": {
                "type": "string",
                "oneOf": [{"const": f"value{n}", "title": f"{word} Option"} for n, word in _WORDS],
            },
            "legacyEnum": {
                "type": "string",
                "enum": ["opt1", "opt2", "opt3"],
                "enumNames": ["Option One", "Option Two", "Option Three"],
            },
            "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
            "titledMulti": {
                "type": "array",
                "items": {"anyOf": [{"const": f"value{n}", "title": f"{word} Choice"} for n, word in _WORDS]},
            },
        },
    }
    answer = await ctx.elicit("Please select options from the enum fields", form)
    return f"Elicitation completed: {answer.action}, {answer.data}"


_WORDS = ((1, "First"), (2, "Second"), (3, "Third"))


@server.tool
async def test_streaming_elicitation(ctx: Context) -> str:
    """Asks a question; on 2026-07-28 by ending the request."""
    answer = await ctx.elicit("May I go on?", bool)
    return f"Answered: {answer.action}"


@server.tool
async def test_missing_capability(ctx: Context) -> str:
    """Needs a client that can sample."""
    if not ctx.supports("sampling"):
        raise NotSupported("This tool needs sampling", {"sampling": {}})
    return "The client can sample."


@dataclass
class Name:
    name: str


@server.tool
async def test_input_required_result_elicitation(ctx: Context) -> str:
    """Asks for a name under a key of its own."""
    answer = await ctx.elicit("What is your name?", Name, key="user_name")
    return f"Hello, {answer.data.name}!" if answer.data else "Hello, whoever you are!"


@server.tool
async def test_input_required_result_sampling(ctx: Context) -> str:
    """Asks the client's model for a capital."""
    answer = await ctx.sample("What is the capital of France?", max_tokens=100, key="capital_question")
    return f"The model says: {_text_of(answer)}"


@server.tool
async def test_input_required_result_list_roots(ctx: Context) -> str:
    """Asks for the client's roots."""
    roots = await ctx.list_roots(key="client_roots")
    return f"Roots: {', '.join(root.uri for root in roots)}"


@dataclass
class Confirmation:
    ok: bool


@server.tool
async def test_input_required_result_request_state(ctx: Context) -> str:
    """Asks, and remembers a step that it took before."""
    step = await ctx.step("prepare", lambda: "prepared")
    answer = await ctx.elicit("Shall I finish?", Confirmation, key="confirm")
    return f"state-ok: {step}, {answer.action}"


@server.tool
async def test_input_required_result_multiple_inputs(ctx: Context) -> str:
    """Asks three things at once."""
    name, greeting, roots = await asyncio.gather(
        ctx.elicit("What is your name?", Name, key="user_name"),
        ctx.sample("Generate a greeting", max_tokens=50, key="greeting"),
        ctx.list_roots(key="client_roots"),
    )
    return f"{_text_of(greeting)} {name.data}, with {len(roots)} roots"


@dataclass
class Color:
    color: str


@server.tool
async def test_input_required_result_multi_round(ctx: Context) -> str:
    """Asks two things in turn."""
    name = await ctx.elicit("Step 1: What is your name?", Name, key="step1")
    color = await ctx.elicit("Step 2: What is your favourite colour?", Color, key="step2")
    return f"Hello {name.data}, you like {color.data}"


@server.tool
async def test_input_required_result_tampered_state(ctx: Context) -> str:
    """Asks; the state in between cannot be changed."""
    answer = await ctx.elicit("Confirm?", Confirmation, key="confirm")
    return f"Confirmed: {answer.action}"


@server.tool
async def test_input_required_result_capabilities(ctx: Context) -> str:
    """Asks in the ways that the client declared."""
    asked: list[Awaitable[object]] = []
    if ctx.supports("elicitation"):
        asked.append(ctx.elicit("What is your name?", Name, key="user_name"))
    if ctx.supports("sampling"):
        asked.append(ctx.sample("Say hello", max_tokens=50, key="greeting"))
    answers = await asyncio.gather(*asked)
    return f"Got {len(answers)} answers"


def _text_of(message: types.CreateMessageResult) -> str:
    content = message.content[0] if isinstance(message.content, list) else message.content
    return getattr(content, "text", f"a {type(content).__name__}")


# --- Tasks: work that outlives its request ----------------------------------------------------------------------------


@server.tool
def greet(name: str) -> str:
    """Answers at once, never as a task."""
    return f"Hello, {name}!"


@server.tool(task="optional")
async def slow_compute(ctx: Context, seconds: float = 1, label: str = "result") -> str:
    """Works for a while and says how far it is; a task for clients that can take one."""
    steps = 10
    for step in range(steps):
        await ctx.progress(step, total=steps, message=f"step {step + 1} of {steps}")
        await asyncio.sleep(seconds / steps)
    return f"{label}: computed for {seconds:g} seconds"


@server.tool(task="required")
async def failing_job() -> str:
    """Only runs as a task, and fails in a way that the model can see."""
    await asyncio.sleep(1)
    raise ToolError("This job intentionally fails")


@server.tool(task="optional")
async def protocol_error_job() -> str:
    """Ends with an error of the protocol."""
    await asyncio.sleep(0.5)
    raise ProtocolError(-32603, "This job intentionally ends with an error of the protocol")


@dataclass
class Agreement:
    confirm: bool


@server.tool(task="optional")
async def confirm_delete(ctx: Context, filename: str = "notes.txt") -> str:
    """Asks before it deletes (nothing is deleted)."""
    answer = await ctx.elicit(f"Delete {filename}?", Agreement)
    agreed = answer.data is not None and answer.data.confirm
    return f"Deleted {filename}" if agreed else f"Kept {filename}"


@dataclass
class Signature:
    name: str
    confirm: bool


@server.tool(task="optional")
async def multi_input(ctx: Context) -> str:
    """Asks for two signatures at once."""
    answers = await asyncio.gather(
        ctx.elicit("Who signs for the first party?", Signature, key="first"),
        ctx.elicit("Who signs for the second party?", Signature, key="second"),
    )
    signed = [answer.data.name for answer in answers if answer.data is not None and answer.data.confirm]
    return f"Signed by {' and '.join(signed) or 'nobody'}"


@server.tool(task="optional", detaches=True)
async def test_tool_with_task(ctx: Context) -> str:
    """Asks for a name first, and then goes on as a task."""
    answer = await ctx.elicit("What is your name?", Name, key="user_name")
    await ctx.detach()
    await asyncio.sleep(0.2)
    return f"Prepared for {answer.data.name if answer.data else 'nobody'}"


# --- Schemas and headers ---------------------------------------------------------------------------------------------

ADDRESS = {
    "$anchor": "address",
    "type": "object",
    "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
}


@server.tool(
    input_schema={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"address": ADDRESS},
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    }
)
def json_schema_2020_12_tool(arguments: dict[str, Any]) -> str:
    """Takes arguments that only a full JSON Schema can describe."""
    return f"Called with {sorted(arguments)}"


@server.tool
def test_x_mcp_header(region: Annotated[str, Header("Region")] = "eu") -> str:
    """Takes an argument that clients repeat in a header."""
    return f"Region: {region}"


# --- Changes at run time ---------------------------------------------------------------------------------------------


async def passing() -> str:
    """Here until the next change."""
    return "gone soon"


PASSING_TOOL = Tool(passing)
PASSING_PROMPT = Prompt.text("Here until the next change", name="passing", description="Here until the next change.")


@server.tool
async def test_trigger_tool_change() -> str:
    """Adds a tool, or takes it away again."""
    return _switch(PASSING_TOOL)


@server.tool
async def test_trigger_prompt_change() -> str:
    """Adds a prompt, or takes it away again."""
    return _switch(PASSING_PROMPT)


_added: list[Tool | Prompt] = []


def _switch(component: Tool | Prompt) -> str:
    if component in _added:
        _added.remove(component)
        server.remove(component)
    else:
        _added.append(component)
        server.add(component)
    return "The list changed."


# --- Resources -------------------------------------------------------------------------------------------------------


@server.resource("test://static-text", mime_type="text/plain")
def static_text() -> str:
    """A text that never changes."""
    return "This is the content of the static text resource."


@server.resource("test://static-binary", mime_type="image/png")
def static_binary() -> bytes:
    """An image that never changes."""
    return PIXEL


@server.resource("test://watched-resource", mime_type="text/plain")
def watched() -> str:
    """A text worth subscribing to."""
    return "Watched."


@server.resource("test://template/{id}/data", mime_type="application/json")
def template(id: str) -> dict[str, Any]:
    """Data under an id."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


server.add(Resource("test://logo", content=base64.b64encode(PIXEL).decode(), name="logo", description="A constant."))

# --- Prompts and completions -----------------------------------------------------------------------------------------


@server.prompt
def test_simple_prompt() -> str:
    """A prompt without arguments."""
    return "This is a simple prompt for testing."


@server.prompt
def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """A prompt with two arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@server.completion(prompt="test_prompt_with_arguments", argument="arg1")
async def arg1_values(partial: str) -> list[str]:
    return [value for value in ("testValue1", "testValue2", "other") if value.startswith(partial)]


@server.prompt
def test_prompt_with_embedded_resource(resourceUri: str) -> list[Any]:
    """A prompt that carries a resource."""
    return [
        Message(_embedded(resourceUri, "Embedded resource content for testing.")),
        "Please process the resource above.",
    ]


@server.prompt
def test_prompt_with_image() -> list[Any]:
    """A prompt that carries an image."""
    return [Message(Image(data=PIXEL, mime_type="image/png")), "Please analyze the image above."]


class Situation(msgspec.Struct):
    context: str


@server.prompt
async def test_input_required_result_prompt(ctx: Context) -> str:
    """A prompt that asks for its context."""
    answer = await ctx.elicit("What context should be used?", Situation, key="user_context")
    return f"Use this context: {answer.data}"


if __name__ == "__main__":
    server.run("http", port=int(sys.argv[1]) if len(sys.argv) > 1 else 8000)

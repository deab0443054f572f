"""A server with two tools, a resource template and a prompt."""

from toolwire import Server

server = Server("hello", version="1.0.0", instructions="Greets people and adds numbers.")


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: The first number.
        b: The second number.
    """
    return a + b


@server.tool
def greet(name: str) -> str:
    """Greet someone by name."""
    return f"Hello, {name}!"


@server.resource("hello://{name}")
async def card(name: str) -> dict[str, str]:
    """A greeting card."""
    return {"to": name, "text": f"Hello, {name}!"}


@server.prompt
def welcome(name: str) -> str:
    """Ask the model to welcome someone."""
    return f"Write a warm welcome for {name} in two sentences."


if __name__ == "__main__":
    server.run()

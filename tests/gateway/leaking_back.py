"""A command whose tool has a secret in its result."""

from toolwire import Limits, Server

server = Server("leaking", limits=Limits(task_window=0.0, task_poll=0.02))


@server.tool(task="optional")
async def leak() -> str:
    return "the key is sk-1234"


@server.tool
async def other() -> str:
    return "other"


if __name__ == "__main__":
    server.run()

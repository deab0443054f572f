"""A team's to-do list behind a sign-in: everybody sees their own, whoever may write can add.

Over HTTP every request needs a token. People sign in at the team's identity provider; programs have a key.

    TEAM_ISSUER=https://login.example.com TEAM_AUDIENCE=https://todo.example.com/mcp \\
        toolwire run examples/team.py --transport http --public-url https://todo.example.com

Without TEAM_ISSUER only keys are accepted: TEAM_KEYS is a list of NAME=KEY, each as `toolwire.auth.hashed(key)` makes
it, so that the keys themselves stand nowhere.
"""

import os
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from toolwire import Context, Server, ToolError
from toolwire.auth import JWT, ApiKeys, Principal, ResourceServer

READ, WRITE = "todo:read", "todo:write"


def sign_in() -> ResourceServer:
    """Who is let in: tokens of the identity provider, and keys of programs."""
    issuer = os.environ.get("TEAM_ISSUER")
    verifiers: list[Any] = []
    if issuer:
        verifiers.append(JWT(issuer, audience=os.environ["TEAM_AUDIENCE"]))
    keys = {}
    for pair in os.environ.get("TEAM_KEYS", "").split():
        name, _, digest = pair.partition("=")
        keys[digest] = Principal(name, "keys", scopes=frozenset({READ, WRITE}))
    if keys:
        verifiers.append(ApiKeys(keys))
    if not verifiers:
        raise SystemExit("Say who may sign in: TEAM_ISSUER and TEAM_AUDIENCE, or TEAM_KEYS.")
    return ResourceServer(
        verifiers,
        authorization_servers=[issuer] if issuer else [],
        scopes=[READ],
        scopes_supported=[READ, WRITE],
        resource_name="The team's to-do list",
    )


@dataclass
class Todos:
    """Everybody's entries by the name under which they signed in."""

    by_owner: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))


server = Server("team", version="1.0.0", instructions="The to-do list of whoever is signed in.", auth=sign_in())
todos = Todos()
MOST = 1_000


def owner(ctx: Context) -> str:
    if ctx.principal is None:
        raise ToolError("Nobody is signed in: reach this server over HTTP, with a token.")
    # The provider belongs to it: two of them may have a user of the same name.
    return f"{ctx.principal.provider}:{ctx.principal.subject}"


@server.tool(annotations={"readOnlyHint": True}, scopes=[READ])
async def list_todos(ctx: Context) -> list[str]:
    """List your to-dos. Returns them in the order in which they were added."""
    return todos.by_owner[owner(ctx)]


@server.tool(scopes=[WRITE])
async def add_todo(text: str, ctx: Context) -> int:
    """Add a to-do to your list. Returns how many there are now.

    Args:
        text: What is to be done.
    """
    mine = todos.by_owner[owner(ctx)]
    if len(mine) >= MOST:
        raise ToolError("The list is full: finish something first.")
    mine.append(text[:500])
    return len(mine)


@server.tool(annotations={"idempotentHint": True}, scopes=[WRITE])
async def finish_todo(text: str, ctx: Context) -> str:
    """Take a to-do off your list. Returns what became of it.

    Args:
        text: The to-do, word for word as `list_todos` shows it.
    """
    mine = todos.by_owner[owner(ctx)]
    if text not in mine:
        raise ToolError("There is no such to-do; list_todos shows those that there are.")
    mine.remove(text)
    return f"Done: {text}"


if __name__ == "__main__":
    server.run("http", public_url=os.environ.get("TEAM_PUBLIC_URL"))

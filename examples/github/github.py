"""Ten tools of GitHub, out of 1,223 operations, for a model that works on issues and pull requests.

The tools stand in api.lock.json. `toolwire openapi add github.json --overlay overlay.yaml --all` wrote it, and
`toolwire run api.lock.json` serves them without this file. Here one of them is written by hand: GitHub answers a
README in base64, which a model cannot read well.

    toolwire call examples/github/github.py search_repositories q="json schema language:python"
"""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import TypedDict

from toolwire import Server, ToolError
from toolwire.openapi import Operation, openapi


class Readme(TypedDict, total=False):
    path: str
    encoding: str
    content: str


server = Server("github", instructions="Reads public repositories of GitHub, and writes issues and comments.")
# Without a token GitHub answers sixty requests an hour.
TOKEN = {"token": "$GITHUB_TOKEN"} if os.environ.get("GITHUB_TOKEN") else None
api = openapi(Path(__file__).with_name("api.lock.json"), credentials=TOKEN)


@api.override("repos/get-readme")
async def get_readme(call: Operation, owner: str, repo: str) -> str:
    """Read the README of a repository. Returns its Markdown.

    Args:
        owner: The account that owns the repository, such as `python`.
        repo: The name of the repository, such as `cpython`.
    """
    readme = await call(owner=owner, repo=repo, returns=Readme)
    if readme.get("encoding") != "base64":
        raise ToolError(f"the README of {owner}/{repo} is too large to be read here")
    return base64.b64decode(readme.get("content", "")).decode("utf-8", "replace")


server.include(api)

if __name__ == "__main__":
    server.run()

"""A server of skills for the tests of the client: files in a dict, entries made from them, everything recorded."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

from toolwire import Context, Server, types
from toolwire.protocol import skills as rules
from toolwire.protocol.errors import INVALID_PARAMS, ProtocolError
from toolwire.skills.frontmatter import read_skill_document


def skill_md(name: str, description: str = "Fill in forms", body: str = "# How\n", **more: str) -> bytes:
    lines = [f"name: {name}", f"description: {description}", *(f"{key}: {value}" for key, value in more.items())]
    return "\n".join(["---", *lines, "---", body]).encode()


class ServedSkills:
    """The skills of a server by their paths, each a dict of files. Change them, and the next entry shows it."""

    def __init__(
        self, skills: Mapping[str, Mapping[str, bytes]], *, ttl: int = 0, unlisted: tuple[str, ...] = ()
    ) -> None:
        self.skills: dict[str, dict[str, bytes]] = {path: dict(files) for path, files in skills.items()}
        self.dynamic: set[str] = set()
        self.requests: list[tuple[str, str]] = []
        self.page_size = 2
        self.contents_instead: list[dict[str, Any]] | None = None
        self.tamper: Callable[[dict[str, Any]], Any] = lambda entry: None
        self.server = self._make(ttl, unlisted)

    @property
    def reads(self) -> list[str]:
        return [uri for method, uri in self.requests if method == "resources/read"]

    def count(self, method: str) -> int:
        return sum(1 for each, _ in self.requests if each == method)

    def entry(self, path: str) -> dict[str, Any]:
        root = f"skill://{path}"
        files = self.files(path)
        listed = [
            {"uri": f"{root}/{rules.encode_path(file)}", "digest": rules.digest_of(data), "size": len(data)}
            for file, data in files.items()
        ]
        entry = {
            "uri": f"{root}/SKILL.md",
            "frontmatter": read_skill_document(files["SKILL.md"]).frontmatter,
            "resources": "dynamic" if path in self.dynamic else listed,
        }
        self.tamper(entry)
        return entry

    def files(self, path: str) -> dict[str, bytes]:
        """Return the files of a skill, with those of the skills nested in it."""
        nested = {
            f"{other[len(path) + 1 :]}/{file}": data
            for other, files in self.skills.items()
            if other.startswith(f"{path}/")
            for file, data in files.items()
        }
        return {**self.skills[path], **nested}

    def _make(self, ttl: int, unlisted: tuple[str, ...]) -> Server:
        server = Server("skills")
        extension = server.extension(
            types.SKILLS_EXTENSION, {"directoryRead": True}, needs_client=False, families=("resources",)
        )
        cached = {"ttlMs": ttl, "cacheScope": "private"}

        @extension.method("skills/list", params=types.ListSkillsRequestParams)
        async def list_skills(params: types.ListSkillsRequestParams, ctx: Context) -> dict[str, Any]:
            cursor = params.cursor if isinstance(params.cursor, str) else ""
            self.requests.append(("skills/list", cursor))
            paths = sorted(path for path in self.skills if path not in unlisted)
            first = int(cursor or 0)
            page = {"skills": [self.entry(path) for path in paths[first : first + self.page_size]]}
            if first + self.page_size < len(paths):
                page["nextCursor"] = str(first + self.page_size)  # type: ignore[assignment]
            return {**page, **cached}

        @extension.method("skills/get", params=types.GetSkillRequestParams)
        async def get_skill(params: types.GetSkillRequestParams, ctx: Context) -> dict[str, Any]:
            self.requests.append(("skills/get", params.uri))
            path = params.uri.removeprefix("skill://").removesuffix("/SKILL.md")
            if path not in self.skills:
                raise ProtocolError(INVALID_PARAMS, "There is no such skill", {"uri": params.uri})
            return {"skill": self.entry(path), **cached}

        @extension.method("resources/directory/read", params=types.ReadResourceDirectoryRequestParams)
        async def read_directory(params: types.ReadResourceDirectoryRequestParams, ctx: Context) -> dict[str, Any]:
            self.requests.append(("resources/directory/read", params.uri))
            found: dict[str, bool] = {}
            for uri in self._uris():
                if uri.startswith(f"{params.uri}/"):
                    child, slash, _ = uri[len(params.uri) + 1 :].partition("/")
                    found[child] = bool(slash)
            children = [
                {"uri": f"{params.uri}/{name}", "name": name, **({"mimeType": "inode/directory"} if folder else {})}
                for name, folder in sorted(found.items())
            ]
            return {"resources": [*children, {"uri": "skill://elsewhere/x.md", "name": "x.md"}]}

        @server.use
        async def read(ctx: Context, call_next: Any) -> Any:
            if ctx.method != "resources/read":
                return await call_next(ctx)
            self.requests.append(("resources/read", ctx.params.uri))
            if self.contents_instead is not None:
                return {"contents": self.contents_instead, **cached}
            data = self._uris().get(ctx.params.uri)
            if data is None:
                raise ProtocolError(INVALID_PARAMS, "Resource not found", {"uri": ctx.params.uri})
            try:
                contents = {"text": data.decode(), "mimeType": "text/markdown"}
            except UnicodeDecodeError:
                contents = {"blob": base64.b64encode(data).decode(), "mimeType": "application/octet-stream"}
            return {"contents": [{"uri": ctx.params.uri, **contents}], **cached}

        return server

    def _uris(self) -> dict[str, bytes]:
        return {
            f"skill://{path}/{rules.encode_path(file)}": data
            for path, files in self.skills.items()
            for file, data in files.items()
        }

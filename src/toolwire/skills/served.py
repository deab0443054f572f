"""The skills of a server: components, reloading of folders, bridge for other clients."""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final, Literal, TypeAlias, TypeVar

from toolwire.protocol import skills as rules
from toolwire.protocol.errors import ServerError, counted
from toolwire.server.catalog import SkillSet, changed_files
from toolwire.server.component_directory import find_folder
from toolwire.server.components import Cache, Prompt, Resource
from toolwire.server.components.restriction import VisibleTo
from toolwire.server.server import Server
from toolwire.skills.bridge import bridge_tools, instructions_for, prompt_for
from toolwire.skills.component import ListedFile, ServedSkill
from toolwire.skills.extension import MAX_PAGE_ENTRIES, SkillsExtension
from toolwire.skills.folder import LoadedFolder, LoadedSkill, SkillsError, load_skill, load_skills, mime_type_of

log: logging.Logger = logging.getLogger("toolwire.skills")
F = TypeVar("F", bound=Callable[..., Any])

#: The files of skills that `resources/list` has.
ListFiles: TypeAlias = Literal["skill", "all", "none"]
#: Skills change with a release of their server, and every conversation of a host asks for them.
DEFAULT_CACHE: Final = Cache(ttl_ms=300_000, scope="public")


class SkillFolder:
    """A folder of skills that a server offers. `server.skills()` and `server.skill()` return it."""

    def __init__(
        self,
        served: ServedSkills,
        root: str,
        load: Callable[[], LoadedFolder],
        *,
        strict: bool,
        is_listed: bool,
        list_files: ListFiles,
        options: dict[str, Any],
    ) -> None:
        if list_files not in ("skill", "all", "none"):
            raise ServerError(f"list_files= is 'skill', 'all' or 'none', not {list_files!r}")
        self._served = served
        self.root: str = root
        """The path of the folder."""
        self._load = load
        self._strict = strict
        self.is_listed = is_listed
        self.list_files: ListFiles = list_files
        self.options: dict[str, Any] = options
        self.loaded: LoadedFolder = self._read()

    def reload(self) -> None:
        """Load the folder again and replace its skills in one step.

        If the folder cannot be served, `SkillsError` says why, and the skills stay as they were.
        """
        self._served.replace(self, self._read())

    def _read(self) -> LoadedFolder:
        loaded = self._load()
        if loaded.problems and self._strict:
            raise SkillsError(self.root, loaded.problems)
        for problem in loaded.problems:
            log.warning("a skill is left out: %s", problem)
        if loaded.left_out:
            log.info("left out of the skills, %s: %s", counted(len(loaded.left_out), "file"), _summary(loaded))
        return loaded

    def __iter__(self) -> Iterator[LoadedSkill]:
        return iter(self.loaded.skills)

    def __len__(self) -> int:
        return len(self.loaded.skills)


def _summary(loaded: LoadedFolder) -> str:
    shown = [f"{each.file} ({each.reason})" for each in loaded.left_out[:10]]
    more = len(loaded.left_out) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


class ServedSkills:
    """All skills of one server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._folders: dict[SkillFolder, LoadedFolder] = {}
        self._generated: dict[str, Resource] = {}
        self._changing = threading.RLock()
        self._prompts: list[Prompt] = []
        self._has_prompts = False
        self._has_bridge = False
        self._instructions = server.instructions
        self._budget: int | None = None
        self._extension = SkillsExtension(server.catalog)

    def add(
        self,
        folder: str | os.PathLike[str],
        *,
        one: bool,
        prefix: str = "",
        strict: bool = True,
        scopes: str | Iterable[str] | None = None,
        visible_to: VisibleTo = None,
        tags: str | Iterable[str] | None = None,
        cache: Cache | None = None,
        listed: bool = True,
        list_files: ListFiles = "skill",
        bridge: bool = False,
        prompts: bool = False,
        instructions: bool | int = False,
        page_size: int | None = None,
    ) -> SkillFolder:
        """Load a folder and serve its skills.

        `one` means that the folder itself is the skill.
        """
        root = os.fspath(find_folder(folder, "skill folder"))
        options = {"scopes": scopes, "visible_to": visible_to, "tags": tags, "cache": cache or DEFAULT_CACHE}
        if page_size is not None and not 1 <= page_size <= MAX_PAGE_ENTRIES:
            raise ServerError(f"page_size= of skills is 1 to {MAX_PAGE_ENTRIES}")
        added = SkillFolder(
            self,
            root,
            partial(load_skill if one else load_skills, root, prefix, answer=self._server.limits.result),
            strict=strict,
            is_listed=listed,
            list_files=list_files,
            options=options,
        )
        self._has_prompts = self._has_prompts or prompts
        if instructions is not False:
            self._budget = 500 if instructions is True else instructions
        self.replace(added, added.loaded)
        if bridge and not self._has_bridge:
            self._has_bridge = True
            self._server.add(bridge_tools(self._server))
        if page_size is not None:
            self._extension.page_size = page_size
        return added

    def add_file(self, path: str, function: Callable[..., Any], options: dict[str, Any]) -> None:
        """Serve a generated file.

        Its skill, and every skill around it, loses its digests.
        """
        segments = path.strip("/").split("/")
        uri = f"skill://{rules.encode_path('/'.join(segments))}"
        skill = self._innermost(uri)
        if skill is None:
            raise ServerError(f"{uri} is in no skill: register the folder with its SKILL.md first, by server.skill()")
        if rules.path_of(skill.loaded.root, uri) is None:
            raise ServerError(f"{path!r} is not the path of a file in {skill.loaded.root}")
        if segments[-1] == rules.SKILL_FILE:
            raise ServerError(f"{rules.SKILL_FILE} cannot be generated: its frontmatter stands in the list of skills")
        restrictions = {name: getattr(skill, name) for name in ("scopes", "tags")}
        if skill.visible_to is not None:
            audience = skill.visible_to
            restrictions["visible_to"] = audience.picks or audience.scopes
        options.setdefault("name", segments[-1])
        options.setdefault("mime_type", mime_type_of(segments[-1]))
        with self._changing:
            generated = self._generated[uri] = Resource(uri, function, **restrictions, **options)
            generated.is_hidden_without_scopes = True
            self._install()

    def _innermost(self, uri: str) -> ServedSkill | None:
        skills = [each for each in self._server.catalog.skill_set.skills.values() if isinstance(each, ServedSkill)]
        around = [each for each in skills if uri.startswith(f"{each.loaded.root}/")]
        return max(around, key=lambda each: len(each.loaded.root), default=None)

    # --- one generation ---

    def replace(self, folder: SkillFolder, loaded: LoadedFolder) -> None:
        """Replace the served contents of one folder."""
        with self._changing:
            before = dict(self._folders)
            self._folders[folder] = loaded
            try:
                self._install()
            except ServerError:
                self._folders = before
                raise
            folder.loaded = loaded

    def _install(self) -> None:
        """Build the next generation of skills and replace the current one."""
        old = self._server.catalog.skill_set
        new = self._generation()
        prompts = self._prompts_of(new) if self._has_prompts else []
        if not self._extension.methods:
            self._server.catalog.add_extension(self._extension)
            self._extension.register()
        self._server.catalog.set_skills(new)
        self._show_prompts(prompts)
        if self._budget is not None:
            shown = [each for each in new.skills.values() if isinstance(each, ServedSkill) and _is_public(each)]
            lines = instructions_for(shown, self._budget)
            self._server.kernel.offer.tell_instructions("\n\n".join(filter(None, (self._instructions, lines))))
            self._server.kernel.offer.refresh()
        for uri in changed_files(old.digests, new.digests):
            self._server.notify_updated(uri)

    def _generation(self) -> SkillSet:
        skills: dict[str, Resource] = {}
        listed: dict[str, Resource] = {}
        files: dict[str, Resource] = {}
        generated_here: dict[str, Resource] = {}  # A file whose skill is gone is left out.
        self._check_nesting()
        for folder, loaded in self._folders.items():
            # The skill around a nested one comes first, and reads the files of both.
            for each in loaded.skills:
                if each.uri in skills:
                    raise ServerError(f"Two folders have the skill {each.uri}: give one of them another prefix=")
                inside = f"{each.root}/"
                generated = {uri: file for uri, file in self._generated.items() if uri.startswith(inside)}
                skill = ServedSkill(each, generated, is_listed=folder.is_listed, **folder.options)
                skills[each.uri] = skill
                generated_here |= generated
                for uri in (*skill.files, *skill.directories):
                    files.setdefault(uri, skill)
                if folder.list_files == "none" or not folder.is_listed:
                    continue
                for file in each.files:
                    if file.uri == each.uri:
                        listed[file.uri] = ListedFile(skill, file, each.name, each.description, **folder.options)
                    elif folder.list_files == "all":
                        name = file.path.rpartition("/")[2]
                        listed.setdefault(file.uri, ListedFile(skill, file, name, None, **folder.options))
        digests = {
            file.uri: file.digest for each in self._folders.values() for one in each.skills for file in one.files
        }
        roots = tuple(folder.root for folder in self._folders)
        return SkillSet(skills, listed, files | generated_here, digests, roots)

    def _check_nesting(self) -> None:
        """Raise `ServerError` when a skill lies inside a skill of another folder.

        The entry of the outer skill would not have its files.

        Clause "Resources": the entry of a skill names the files of nested skills, too.
        """
        homes = {each.root: folder for folder, loaded in self._folders.items() for each in loaded.skills}
        for root, folder in homes.items():
            above = root.rpartition("/")[0]
            while len(above) > len("skill://"):
                if homes.get(above, folder) is not folder:
                    raise ServerError(f"{root} lies inside the skill {above} of another folder: choose another prefix=")
                above = above.rpartition("/")[0]

    def _prompts_of(self, skills: SkillSet) -> list[Prompt]:
        """Make a prompt for each listed skill.

        A prompt of the program keeps its name.
        """
        others = {name for name, each in self._server.catalog.prompts.items() if each not in self._prompts}
        shown = [each for each in skills.skills.values() if isinstance(each, ServedSkill) and each.is_listed]
        count = Counter(each.name for each in shown)
        made = [prompt_for(each, unique=count[each.name] == 1) for each in shown]
        for each in made:
            if each.name in others:
                log.warning("a skill is not a prompt, because the server has another prompt named %s", each.name)
        return [each for each in made if each.name not in others]

    def _show_prompts(self, prompts: list[Prompt]) -> None:
        """Replace the prompts of the last generation, with none missing meanwhile."""
        names = {each.name for each in prompts}
        held = self._server.catalog.prompts
        gone = [each for each in self._prompts if each.name not in names and held.get(each.name) is each]
        self._prompts = prompts
        if prompts:
            self._server.add(prompts)
        if gone:
            self._server.remove(gone)


def _is_public(skill: ServedSkill) -> bool:
    """Return whether every caller sees a skill, so that the instructions may name it."""
    return skill.is_listed and skill.visible_to is None and not skill.scopes and not skill.tags

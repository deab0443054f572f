"""Registration of components: by decorators, as arguments, from a directory, at any time."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, Self, TypeAlias, TypedDict, TypeVar, Unpack, overload

from toolwire.lazy_parts import load_part
from toolwire.protocol.errors import ServerError
from toolwire.schemas import Profile
from toolwire.server.catalog import Catalog
from toolwire.server.completion import Completion
from toolwire.server.components import Cache, Component, Icons, Prompt, Resource, ResourceTemplate, Tool
from toolwire.server.components.decorating import PromptOptions, ResourceOptions, ToolOptions, check_options
from toolwire.server.components.options import ViewOfTool
from toolwire.server.components.restriction import VisibleTo

log: logging.Logger = logging.getLogger("toolwire.server")
F = TypeVar("F", bound=Callable[..., Any])
Addable: TypeAlias = Component | Callable[..., Any]
Removable: TypeAlias = Component | str


class SkillOptions(TypedDict, total=False):
    """The options of `server.skills` and `server.skill`."""

    prefix: str
    strict: bool
    scopes: str | Iterable[str] | None
    visible_to: VisibleTo
    tags: str | Iterable[str] | None
    cache: Cache | None
    listed: bool
    list_files: Literal["skill", "all", "none"]
    bridge: bool
    prompts: bool
    instructions: bool | int
    page_size: int | None


class SkillsOnServer(Protocol):
    """A folder of skills that a server offers."""

    def reload(self) -> None:
        """Load the folder again, in one step. If it cannot be served, raise, and keep the skills as they were."""

    def __len__(self) -> int: ...


class PageOfView(Protocol):
    """A page that a program made (`toolwire.apps.Page`)."""

    @property
    def name(self) -> str: ...

    @property
    def html(self) -> str: ...


class OriginsOfView(Protocol):
    """The origins that a view may reach (`toolwire.apps.Csp`)."""

    def to_wire(self) -> dict[str, list[str]]:
        """Return `_meta.ui.csp`."""


class AppOnServer(ViewOfTool, Protocol):
    """A view that a server offers (`toolwire.apps.App`)."""

    @overload
    def tool(self, function: F, /) -> F: ...

    @overload
    def tool(self, name: str | None = None, /, **options: Unpack[ToolOptions]) -> Callable[[F], F]: ...

    def tool(self, function: Any = None, /, **options: Any) -> Any:
        """Register a tool for the view alone; models do not see it. The options are those of `server.tool`."""

    def reload(self) -> None:
        """Load the page again. If it cannot be served, raise, and keep the view as it was."""


class Registering:
    """The part of a server that takes components."""

    catalog: Catalog
    schema_profile: Profile
    _served_skills: Any = None
    _served_apps: Any = None

    @overload
    def tool(self, function: F, /) -> F: ...

    @overload
    def tool(self, name: str | None = None, /, **options: Unpack[ToolOptions]) -> Callable[[F], F]: ...

    def tool(self, function: Any = None, /, **options: Any) -> Any:
        """Register a function as a tool; bare or called with the options of `Tool`. Returns the function."""
        check_options(options, ToolOptions, "tool")
        if isinstance(function, str):
            options.setdefault("name", function)
            function = None
        options.setdefault("schema_profile", self.schema_profile)
        return self._decorate(function, lambda each: Tool(each, **options))

    @overload
    def prompt(self, function: F, /) -> F: ...

    @overload
    def prompt(self, name: str | None = None, /, **options: Unpack[PromptOptions]) -> Callable[[F], F]: ...

    def prompt(self, function: Any = None, /, **options: Any) -> Any:
        """Register a function as a prompt; bare or called with the options of `Prompt`. Returns the function."""
        check_options(options, PromptOptions, "prompt")
        if isinstance(function, str):
            options.setdefault("name", function)
            function = None
        return self._decorate(function, lambda each: Prompt(each, **options))

    def resource(self, uri: str, /, **options: Unpack[ResourceOptions]) -> Callable[[F], F]:
        """Register a function as a resource, or as a template when the address has `{variables}`."""
        check_options(options, ResourceOptions, "resource")
        if callable(uri):
            raise ServerError('A resource needs an address: @server.resource("note://today")')
        kind: Any = ResourceTemplate if "{" in uri else Resource

        def register(function: F) -> F:
            self._add_new(kind(uri, function, **options))
            return function

        return register

    def completion(self, *, prompt: str | None = None, template: str | None = None, argument: str) -> Callable[[F], F]:
        """Register a function that suggests values for an argument of a prompt or a variable of a template."""
        if (prompt is None) == (template is None):
            raise ServerError("A completion is for prompt= or for template=, one of the two")
        kind, target = ("ref/prompt", prompt) if prompt is not None else ("ref/resource", template)

        def register(function: F) -> F:
            self._complete(kind, str(target), argument, function)
            return function

        return register

    def _complete(self, kind: str, target: str, argument: str, source: Any) -> None:
        # Imported here because most servers complete nothing.
        from toolwire.server.rule_names import check_completed

        check_completed(self.catalog, kind, target, argument)
        self.catalog.complete(kind, target, argument, Completion(source))

    def _decorate(self, function: Any, make: Callable[[Any], Component]) -> Any:
        def register(each: F) -> F:
            self._add_new(make(each))
            return each

        return register if function is None else register(function)

    def _add_new(self, component: Component) -> None:
        """Add what a decorator made."""
        self._warn_of_second(component)
        self.add(component)

    def _warn_of_second(self, component: Component, first: Component | None = None) -> None:
        """Log that a component replaces another one of the same name, which is rarely meant."""
        replaced = first or self.catalog.find(component)
        if replaced is not None:
            log.warning(
                "there are two of the %s %r: the one of %s takes the place of the one of %s",
                component.noun,
                component.key,
                component.place,
                replaced.place,
            )

    def add(self, component: Addable | Iterable[Addable]) -> Self:
        """Add a component, or several; a function becomes a tool, as in `Server(tools=)`.

        It works at any time and from any thread. Every client that can be told is told, once for each list that
        changed. If one of several cannot be added, none is.
        """
        added = [self._component_of(each) for each in all_of(component)]
        for each in added:
            self._check_view(each)
        self.catalog.add(*added)
        return self

    def _check_view(self, component: Any) -> None:
        """Raise `ServerError` for a tool whose view this server does not have."""
        app = component.app if isinstance(component, Tool) else None
        if app is not None and self.catalog.resource(app.uri) is None:
            raise ServerError(f"The tool {component.name!r} has the view {app.uri}, which is that of another server")

    def add_directory(self, directory: str | os.PathLike[str]) -> Self:
        """Add every component that the files of a directory define, as `scan` finds them."""
        from toolwire.server.component_directory import scan  # Only servers with such a directory load it.

        found = scan(directory, schema_profile=self.schema_profile).all()
        named: dict[tuple[str, str], Component] = {}
        for component in found:
            self._warn_of_second(component, named.get((component.kind, component.key)))
            named[component.kind, component.key] = component
        return self.add(found)

    def skills(self, folder: str | os.PathLike[str], **options: Unpack[SkillOptions]) -> SkillsOnServer:
        """Offer every skill below a folder: each sub-folder with a SKILL.md (SEP-2640).

        The skills are read, checked and hashed now. A relative path starts at the file that calls this. `prefix` stands
        before the path of each skill in its URI. `strict=False` leaves out skills with mistakes and logs why.
        `listed=False`: a client has to know the URI. `list_files` says which files `resources/list` has: "skill" (by
        default), "all" or "none". `bridge=True` adds two tools and `prompts=True` a prompt for each skill, for clients
        that know no skills. `instructions=True`, or a number of tokens, names the skills in the instructions of the
        server. `scopes`, `visible_to`, `tags`, `cache` and `page_size` are those of other resources and lists.
        """
        check_options(options, SkillOptions, "folder of skills")
        added: SkillsOnServer = self._skills_part().add(folder, one=False, **options)
        return added

    def skill(self, folder: str | os.PathLike[str], **options: Unpack[SkillOptions]) -> SkillsOnServer:
        """Offer the skill in a folder, and the skills nested in it. The options are those of `skills`."""
        check_options(options, SkillOptions, "skill")
        added: SkillsOnServer = self._skills_part().add(folder, one=True, **options)
        return added

    def skill_file(self, path: str, /, **options: Unpack[ResourceOptions]) -> Callable[[F], F]:
        """Register a function that makes a file of a skill: the path of the skill, a slash, and that of the file.

        The skill has to be there. It has no digests from then on: its `resources` are "dynamic".
        """
        check_options(options, ResourceOptions, "skill_file")

        def register(function: F) -> F:
            self._skills_part().add_file(path, function, dict(options))
            return function

        return register

    def app(
        self,
        page: str | os.PathLike[str] | PageOfView,
        *,
        uri: str | None = None,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        icons: Icons = None,
        csp: OriginsOfView | Mapping[str, Any] | None = None,
        permissions: str | Sequence[str] | Mapping[str, Any] | None = None,
        domain: str | None = None,
        prefers_border: bool | None = None,
        bundle: bool = True,
        view: Literal["auto"] | bool = "auto",
        openai: bool = False,
        listed: bool = True,
        meta: Mapping[str, Any] | None = None,
        scopes: str | Iterable[str] | None = None,
        visible_to: VisibleTo = None,
        tags: str | Iterable[str] | None = None,
        cache: Cache | None = None,
        ping: bool | None = None,
    ) -> AppOnServer:
        """Offer a page as a view of tools (SEP-1865): `@server.tool(app=…)` shows its results there.

        `page` is the path of an HTML file, or a `toolwire.apps.Page`. A relative path starts at the file that calls
        this. Its address is `ui://SERVER/FILE`, or `uri`. `csp` has the origins that the view may reach. `permissions`
        are "camera", "microphone", "geolocation" and "clipboardWrite". `domain` is for hosts that give a view a stable
        origin; "claude" makes that of Claude. `bundle=True` puts local scripts, styles and images into the page.
        `view="auto"` adds the view library to a page that does not speak with its host itself. `openai=True` names the
        view by the key of OpenAI, too. `ping=False` refuses `ping` on 2026-07-28, which has none, also to hosts.
        """
        if self._served_apps is None:
            self._served_apps = load_part("server.app")(self)
        added: AppOnServer = self._served_apps.add(
            page,
            uri=uri,
            name=name,
            title=title,
            description=description,
            icons=icons,
            csp=csp,
            permissions=permissions,
            domain=domain,
            prefers_border=prefers_border,
            bundle=bundle,
            view=view,
            openai=openai,
            listed=listed,
            meta=meta,
            scopes=scopes,
            visible_to=visible_to,
            tags=tags,
            cache=cache,
            ping=ping,
        )
        return added

    def _skills_part(self) -> Any:
        if self._served_skills is None:
            self._served_skills = load_part("server.skills")(self)
        return self._served_skills

    def remove(self, component: Removable | Iterable[Removable]) -> Self:
        """Remove a component or several, given as such or by name or address. If one is not there, none is removed."""
        self.catalog.remove(*all_of(component))
        return self

    def _component_of(self, item: Any) -> Component:
        return self._tool_of(item) if callable(item) and not isinstance(item, Component) else item

    def _tool_of(self, function: Any) -> Tool:
        return Tool(function, schema_profile=self.schema_profile)

    def _register_all(
        self, tools: Any, resources: Any, templates: Any, prompts: Any, completions: Any, directory: Any
    ) -> None:
        self.add([each if isinstance(each, Component) else self._tool_of(each) for each in all_of(tools)])
        self.catalog.add(*all_of(resources), *all_of(templates))
        for each in all_of(prompts):
            self.add(each if isinstance(each, Component) else Prompt(each))
        for key, source in (completions or {}).items():
            if not isinstance(key, tuple) or len(key) != 2:
                raise ServerError(f"The keys of completions= are (prompt or template, argument), not {key!r}")
            target, argument = key
            kind = "ref/resource" if "://" in target or "{" in target else "ref/prompt"
            self._complete(kind, target, argument, source)
        if directory is not None:
            self.add_directory(directory)


def all_of(items: Any) -> list[Any]:
    """Return a list of one item, several, or none."""
    if items is None:
        return []
    is_one = callable(items) or isinstance(items, Component | str) or not isinstance(items, Iterable)
    return [items] if is_one else list(items)

"""Forms: fields from a JSON Schema, whose answers go to a tool of the app."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from toolwire import adapters
from toolwire.apps.views.ready import ReadyView
from toolwire.content import ToolResult
from toolwire.protocol.errors import ServerError
from toolwire.server.context import Context

T = TypeVar("T")


class FormView(ReadyView, Generic[T]):
    """A form. `form()` makes it."""

    kind: ClassVar[str] = "form"
    scripts: ClassVar[tuple[str, ...]] = ("form_view",)
    styles: ClassVar[tuple[str, ...]] = ("form",)

    def __init__(
        self, fields: type[T] | dict[str, Any], submit: str | None, button: str, title: str, description: str
    ) -> None:
        super().__init__(title, description, "")
        self.fields: type[T] | dict[str, Any] = fields
        self.submit: str | None = submit
        self.button: str = button
        self.schema: dict[str, Any] = fields if isinstance(fields, dict) else _schema_of(fields)
        if not isinstance(self.schema.get("properties"), Mapping):
            raise ServerError("views.form() takes a record type, or a JSON Schema of an object with properties")

    def settings(self, tools: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        name = self.submit or next(iter(tools), None)
        under = None if name is None or name not in tools else _under(name, self.schema, tools[name])
        return {"schema": self.schema, "submit": name, "under": under, "button": self.button}

    async def fill(
        self, ctx: Context, submit: Callable[[T], Any | Awaitable[Any]], values: Mapping[str, Any] | None = None
    ) -> ToolResult:
        """Let the user fill in the form, and return the result for the model.

        A client that shows views gets the form, with `values` in it; its answers reach the tool of the app later. Of
        another client the same fields are asked for by elicitation, and `submit` is called with the answer: a value of
        the type of the form, or a dict for a form from a JSON Schema.
        """
        title = self.title or "the form"
        if ctx.client_renders_apps:
            told = f"The user sees {title} now. Wait for the answer: it comes from the user and not from you."
            return ToolResult(told, structured={"values": dict(values or {})})
        answer = await ctx.elicit(self.description or self.title or "Please fill in the form.", self.fields)
        if not answer.accepted:
            return ToolResult(f"The user did not fill in {title}.")
        done = submit(answer.data)  # type: ignore[arg-type]
        result = await done if inspect.isawaitable(done) else done
        return result if isinstance(result, ToolResult) else ToolResult(result)


def form(
    fields: type[T] | dict[str, Any],
    *,
    submit: str | None = None,
    button: str = "Send",
    title: str = "",
    description: str = "",
) -> FormView[T]:
    """Make a view with a form for a record type or a JSON Schema.

    It has a field for each member.

    The answers go to the tool of the app (`@app.tool`), or to the one of them that `submit` names. It takes the members
    as its arguments, or one record. `button` is the text on the button.
    """
    return FormView(fields, submit, button, title, description)


def _schema_of(fields: type[Any]) -> dict[str, Any]:
    try:
        return adapters.adapter(fields).schema("input")
    except TypeError as error:
        raise ServerError(f"views.form() cannot make fields: {error}") from None


def _under(tool: str, form: Mapping[str, Any], schema: Mapping[str, Any]) -> str | None:
    """Return the argument that takes the whole record; None if its members are the arguments."""
    taken: Mapping[str, Any] = schema.get("properties", {})
    needed: Sequence[str] = schema.get("required", ())
    if len(taken) == 1 and not taken.keys() & form["properties"].keys():
        return next(iter(taken))
    for name in needed:
        if name not in form["properties"]:
            raise ServerError(f"The form has no field {name!r}, which the tool {tool!r} needs")
    for name in form["properties"]:
        if name not in taken:
            raise ServerError(f"The form has the field {name!r}, which no argument of the tool {tool!r} takes")
    return None

"""Ready views: pages in plain HTML that show tables, charts, forms, changes, images and Markdown.

    orders = server.app(views.table(title="Orders"))

    @server.tool(app=orders)
    async def show_orders(month: str) -> list[Order]: ...

A result is complete without its view: the text of a table is a table in Markdown, that of a change a diff. Every client
gets the same text.
"""

from __future__ import annotations

from toolwire.apps.views.charts import Chart, ChartView, chart
from toolwire.apps.views.diffs import Diff, DiffView, Hunk, diff
from toolwire.apps.views.forms import FormView, form
from toolwire.apps.views.ready import ReadyView
from toolwire.apps.views.tables import Column, TableView, table
from toolwire.apps.views.texts import ImageView, MarkdownView, image, markdown

__all__ = [
    "Chart",
    "ChartView",
    "Column",
    "Diff",
    "DiffView",
    "FormView",
    "Hunk",
    "ImageView",
    "MarkdownView",
    "ReadyView",
    "TableView",
    "chart",
    "diff",
    "form",
    "image",
    "markdown",
    "table",
]

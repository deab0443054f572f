"""Tests of the template-name server and of its view. `pytest` runs them."""

import pytest
from toolwire.testing import ViewFixture


async def test_the_page_has_no_faults(view: ViewFixture) -> None:
    async with view("show_tasks") as shown:
        shown.check_page()  # what leaves a view blank in some host
        assert "Write to Ada" in shown.result.text  # complete without the view, too
        await shown.initialize()


async def test_the_view_can_finish_a_task(view: ViewFixture) -> None:
    async with view("show_tasks") as shown:
        await shown.initialize()
        assert (await shown.call_tool("finish_task", {"number": 1})).structured["done"] is True
        assert (await shown.call_tool("finish_task", {"number": 9})).is_error


async def test_in_a_browser(view: ViewFixture) -> None:
    pytest.importorskip("playwright", reason="pip install playwright, and have Chromium")
    async with view("show_tasks", browser=True, theme="dark", width=420) as shown:
        await shown.check()  # it paints, reports its size, logs no error and breaks no policy
        await shown.frame.get_by_label("Done: Buy tea").click()
        await shown.frame.get_by_text("Buy tea: done.").wait_for()
        assert [call.name for call in shown.calls] == ["finish_task"]

"""The tasks of a fleet in the page: the queue, the reason why a task waits, cancelling, and dead letters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect
from tests.inspector.test_fleet_view import add

from toolwire.stores.sqlite import SqliteStores

FRIENDLY = Path(__file__).parent / "servers" / "friendly.py"


def fill(path: Path) -> tuple[str, str]:
    """Write a task that waits and a dead letter to a store, and return their ids."""

    async def write() -> tuple[str, str]:
        stores = SqliteStores(path)
        try:
            return await add(stores, server="studio"), await add(stores, server="studio", is_dead=True)
        finally:
            stores.close()

    # In another thread: playwright runs a loop in this one.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, write()).result()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_tasks_of_the_fleet(
    scheme: str, inspect: Callable[..., Any], tab: Callable[..., Any], tmp_path: Path
) -> None:
    path = tmp_path / "state.db"
    waits, dead = fill(path)
    opened = tab(inspect("inspect", FRIENDLY, "--stores", path), color_scheme=scheme)
    page = opened.page
    page.get_by_role("tab", name="Tasks").click()
    tasks, side = page.get_by_role("listbox", name="Tasks"), page.locator("#drawer .side")
    expect(tasks.get_by_role("option")).to_have_count(1)
    expect(page.get_by_role("list", name="Tasks by tool")).to_contain_text("report 1 queued, 0 running")
    expect(page.get_by_role("list", name="Tasks by tool")).to_contain_text("1 dead letter, 0 replicas")
    tasks.get_by_role("option", name="report").click()
    expect(side).to_contain_text(waits)
    expect(side.locator(".advice")).to_have_text("no replica of the server runs")
    side.get_by_role("button", name="Show arguments").click()
    expect(side.get_by_role("button", name="Show arguments")).to_have_count(0)
    expect(side).not_to_contain_text("hunter2")
    opened.shot(f"fleet-{scheme}")
    side.get_by_role("button", name="Cancel the task").click()
    expect(side.locator(".side-head .state")).to_have_text("cancelled")
    expect(side.get_by_role("button", name="Cancel the task")).to_have_count(0)
    expect(tasks.get_by_role("option")).to_have_count(0)
    expect(tasks).to_contain_text("No task is here.")

    page.get_by_role("radio", name="Dead letters").click()
    tasks.get_by_role("option", name="dead").click()
    expect(side).to_contain_text(dead)
    side.get_by_role("button", name="Send again").click()
    expect(page.locator("#toasts")).to_contain_text("Sent again as")
    expect(side.locator(".side-head .state")).to_have_text("waiting")
    expect(tasks.get_by_role("option")).to_have_count(0)
    page.get_by_role("radio", name="In the queue").click()
    expect(tasks.get_by_role("option")).to_have_count(1)
    page.get_by_role("radio", name="Over").click()
    expect(tasks.get_by_role("option", name="cancelled")).to_have_count(1)


def test_without_a_store_there_is_no_panel_and_on_a_phone_it_fits(
    inspect: Callable[..., Any], tab: Callable[..., Any], tmp_path: Path
) -> None:
    opened = tab(inspect("inspect", FRIENDLY))
    expect(opened.page.locator("#drawer-calls")).to_be_visible()
    expect(opened.page.locator("#drawer-fleet")).to_be_hidden()
    path = tmp_path / "state.db"
    fill(path)
    phone = tab(inspect("inspect", FRIENDLY, "--stores", path), viewport={"width": 390, "height": 800})
    phone.page.locator("#drawer-fleet").click()
    option = phone.page.get_by_role("listbox", name="Tasks").get_by_role("option", name="report")
    option.click()
    expect(phone.page.locator("#drawer .side .advice")).to_be_visible()
    phone.shot("fleet-phone")
    assert phone.fits()

"""Extensions on the page: their settings, and a form that sends one of their methods."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

POLLS = Path(__file__).parents[2] / "examples" / "polls" / "server.py"


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_a_method_of_an_extension_is_sent(inspect: Callable[..., Any], tab: Callable[..., Any], revision: str) -> None:
    opened = tab(inspect("inspect", str(POLLS), "--revision", revision))
    opened.choose("com.example/polls", "Extensions")
    page = opened.page
    page.get_by_role("radio", name="JSON").first.click()
    page.get_by_label("Request as JSON").fill('{"method": "polls/vote", "params": {"poll": "lunch", "choice": "soup"}}')
    opened.run("Send")
    expect(page.locator(".outcome")).to_contain_text("soup")
    opened.shot(f"extension-{revision}")
    assert opened.fits()

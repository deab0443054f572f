"""Skills on the page: files, digests, what was verified, and what was refused and why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

SKILLS = Path(__file__).parent / "servers" / "skills.py"


@pytest.fixture
def skills(inspect: Callable[..., Any], tab: Callable[..., Any]) -> Callable[..., Any]:
    """A page that looks at one of the servers of skills."""

    def open_page(server: str, revision: str = "2026-07-28") -> Any:
        return tab(inspect("inspect", f"{SKILLS}:{server}", "--revision", revision))

    return open_page


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_a_skill_is_loaded_and_its_files_are_verified(skills: Callable[..., Any], revision: str) -> None:
    tab = skills("honest", revision)
    tab.choose("pdf-processing", "Skills")
    tab.run("Load and verify")
    result = tab.page.get_by_role("region", name="What was verified")
    expect(result).to_contain_text("its frontmatter is the same in every field")
    expect(result.get_by_role("row", name="SKILL.md")).to_contain_text("verified")
    forms = result.get_by_role("row", name="FORMS.md")
    expect(forms).to_contain_text("not read")
    result.get_by_role("button", name="references/FORMS.md").click()
    expect(forms).not_to_contain_text("not read")
    expect(result.locator("pre.text")).to_contain_text("Check each field twice.")
    tab.shot(f"skill-{revision}")
    assert tab.fits()


def test_a_skill_that_was_changed_is_refused_and_the_page_says_why(skills: Callable[..., Any]) -> None:
    tab = skills("changed_file")
    tab.choose("pdf-processing", "Skills")
    tab.run("Load and verify")
    result = tab.page.get_by_role("region", name="What was verified")
    expect(result).to_contain_text("The skill is refused (digest)")
    expect(result.get_by_role("row", name="SKILL.md")).to_contain_text("refused")
    expect(result.get_by_role("button", name="references/FORMS.md")).to_have_count(0)
    expect(result).not_to_contain_text("Leak")
    tab.shot("skill-refused")


def test_an_entry_that_breaks_a_rule_is_listed_as_refused(skills: Callable[..., Any]) -> None:
    tab = skills("wrong_name")
    tab.page.get_by_role("tab", name="Skills").click()
    tab.page.locator("#browse").get_by_role("option", name="refused").click()
    expect(tab.page.locator(".detail")).to_contain_text("The entry is refused (name)")


def test_a_generated_skill_is_marked(skills: Callable[..., Any]) -> None:
    tab = skills("generated")
    tab.choose("pdf-processing", "Skills")
    tab.run("Load without verification")
    expect(tab.page.get_by_role("region", name="What was verified")).to_contain_text("Nothing of it can be verified")


def test_a_server_without_skills_has_no_tab_for_them(inspect: Callable[..., Any], tab: Callable[..., Any]) -> None:
    opened = tab(inspect("inspect", Path(__file__).parent / "servers" / "friendly.py"))
    expect(opened.page.get_by_role("tab", name="Prompts")).to_be_visible()
    expect(opened.page.get_by_role("tab", name="Skills")).to_have_count(0)

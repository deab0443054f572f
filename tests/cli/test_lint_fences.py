"""Blocks of code in a SKILL.md are found by reading its lines once."""

from __future__ import annotations

from tests.cases import cases

from toolwire.cli.lint_skills import _FENCE, _without_fences


@cases(
    ("text", "left"),
    [
        ("a\n```py\n[x](y)\n```\nb", "a\n\n\n\nb"),
        ("~~~\n```\n~~~~\nb", "\n\n\nb"),
        ("````\n```\n````\nb", "\n\n\nb"),
        ("```\n[x](y)", "```\n[x](y)"),
        ("plain", "plain"),
    ],
)
def test_blocks_of_code_become_empty_lines(text: str, left: str) -> None:
    assert _without_fences(text) == left


def test_no_pattern_of_blocks_of_code_has_a_backreference() -> None:
    assert _FENCE.groups == 0
    assert _without_fences("`" * 500_000) == "`" * 500_000

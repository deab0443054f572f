"""The CSS variables that a host of ours gives to views (specification/2026-01-26/apps.mdx, "Theming")."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final


def _colours(kind: str, **values: str) -> dict[str, str]:
    return {f"--color-{kind}-{name}": value for name, value in values.items()}


def _sizes(kind: str, **sizes: tuple[str, str]) -> dict[str, str]:
    members = {}
    for name, (size, height) in sizes.items():
        members[f"--font-{kind}-{name}-size"] = size
        members[f"--font-{kind}-{name}-line-height"] = height
    return members


#: All variables of the clause. One set serves both themes: each colour says what it is in light and in dark.
STYLES: Final[Mapping[str, str]] = {
    **_colours(
        "background",
        primary="light-dark(#ffffff, #1a1f1e)",
        secondary="light-dark(#f3f4f3, #131716)",
        tertiary="light-dark(#e9ebea, #242b29)",
        inverse="light-dark(#1b211f, #e7ecea)",
        ghost="light-dark(rgb(255 255 255 / 0%), rgb(26 31 30 / 0%))",
        info="light-dark(#e1f0ed, #15302c)",
        danger="light-dark(#fceceb, #3a1c1a)",
        success="light-dark(#e5f3ea, #16301f)",
        warning="light-dark(#fdf3dd, #332a15)",
        disabled="light-dark(#f3f4f3, #202625)",
    ),
    **_colours(
        "text",
        primary="light-dark(#1b211f, #e7ecea)",
        secondary="light-dark(#56605c, #a8b3af)",
        tertiary="light-dark(#6a7470, #8b9692)",
        inverse="light-dark(#ffffff, #131716)",
        info="light-dark(#0b6b62, #4fc3b2)",
        danger="light-dark(#b3261e, #ff8a80)",
        success="light-dark(#17703a, #7bd79a)",
        warning="light-dark(#8a5a00, #f0c36d)",
        disabled="light-dark(#9aa29f, #66706c)",
        ghost="light-dark(#6a7470, #8b9692)",
    ),
    **_colours(
        "border",
        primary="light-dark(#cdd2cf, #3c4542)",
        secondary="light-dark(#e2e5e3, #2a312f)",
        tertiary="light-dark(#edefee, #232a28)",
        inverse="light-dark(#1b211f, #e7ecea)",
        ghost="light-dark(rgb(205 210 207 / 0%), rgb(60 69 66 / 0%))",
        info="light-dark(#0b6b62, #4fc3b2)",
        danger="light-dark(#b3261e, #ff8a80)",
        success="light-dark(#17703a, #7bd79a)",
        warning="light-dark(#8a5a00, #f0c36d)",
        disabled="light-dark(#e2e5e3, #2a312f)",
    ),
    **_colours(
        "ring",
        primary="light-dark(#0b6b62, #4fc3b2)",
        secondary="light-dark(#717b77, #8b9692)",
        inverse="light-dark(#ffffff, #131716)",
        info="light-dark(#0b6b62, #4fc3b2)",
        danger="light-dark(#b3261e, #ff8a80)",
        success="light-dark(#17703a, #7bd79a)",
        warning="light-dark(#8a5a00, #f0c36d)",
    ),
    "--font-sans": 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif',
    "--font-mono": 'ui-monospace, "SF Mono", "Cascadia Mono", Menlo, Consolas, monospace',
    "--font-weight-normal": "400",
    "--font-weight-medium": "500",
    "--font-weight-semibold": "600",
    "--font-weight-bold": "700",
    **_sizes("text", xs=("12px", "1.4"), sm=("13px", "1.45"), md=("14px", "1.5"), lg=("16px", "1.5")),
    **_sizes(
        "heading",
        **{
            "xs": ("14px", "1.4"),
            "sm": ("16px", "1.35"),
            "md": ("18px", "1.3"),
            "lg": ("20px", "1.25"),
            "xl": ("24px", "1.25"),
            "2xl": ("30px", "1.2"),
            "3xl": ("36px", "1.15"),
        },
    ),
    "--border-radius-xs": "3px",
    "--border-radius-sm": "5px",
    "--border-radius-md": "8px",
    "--border-radius-lg": "12px",
    "--border-radius-xl": "16px",
    "--border-radius-full": "9999px",
    "--border-width-regular": "1px",
    "--shadow-hairline": "0 0 0 1px light-dark(rgb(20 30 26 / 10%), rgb(255 255 255 / 12%))",
    "--shadow-sm": "0 1px 2px light-dark(rgb(20 30 26 / 14%), rgb(0 0 0 / 50%))",
    "--shadow-md": "0 2px 10px light-dark(rgb(20 30 26 / 14%), rgb(0 0 0 / 50%))",
    "--shadow-lg": "0 8px 28px light-dark(rgb(20 30 26 / 16%), rgb(0 0 0 / 55%))",
}

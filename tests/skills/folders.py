"""Folders of skills for tests."""

from __future__ import annotations

from pathlib import Path


def manifest(name: str, description: str = "Does something useful", body: str = "# Text\n") -> str:
    return f"---\nname: {name}\ndescription: {description}\n---\n{body}"


def write(root: Path, files: dict[str, str | bytes]) -> Path:
    """Write files below a folder. A value without frontmatter under SKILL.md gets one with the name of its folder."""
    for path, content in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str) and file.name == "SKILL.md" and not content.startswith("---"):
            content = manifest(file.parent.name, body=content)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root

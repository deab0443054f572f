"""Rules of `toolwire lint` on folders of skills."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from html import unescape
from itertools import chain
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import unquote

from toolwire.cli.errors import UsageError
from toolwire.cli.lint_rules import Level, LintFinding
from toolwire.hostile_text import hostile_text, hostile_texts
from toolwire.protocol import skills as rules
from toolwire.protocol.errors import ServerError
from toolwire.skills.folder import LoadedFolder, LoadedSkill, SkillFile, load_skill, load_skills
from toolwire.skills.frontmatter import yaml_differences
from toolwire.tokens import count_tokens

# The Agent Skills specification recommends a body below 5,000 tokens; a host shows every description to the model.
_MANY_BODY_TOKENS: Final = 5_000
_MANY_DESCRIPTION_TOKENS: Final = 200
_FEW_WORDS: Final = 5
_WHEN: Final = re.compile(r"\b(?:when|whenever|if|before|after|while|for)\b", re.IGNORECASE)
_LINK: Final = re.compile(r"\]\(\s{0,9}<?([^)\s>]{1,1000})>?[^)\n]{0,300}\)")
# CommonMark, link reference definitions: `[name]: target`. `[^name]: text` is a footnote.
_DEFINITION: Final = re.compile(
    r"^ {0,3}\[(?!\^)[^\]\n]{1,300}\]:[ \t]{0,9}(?:\n[ \t]{0,9})?<?([^\s>]{1,1000})", re.MULTILINE
)
_HTML: Final = re.compile(r"<[A-Za-z][^<>]{0,300}?\s(?:href|src)\s{0,9}=\s{0,9}([^\s\"'>]{1,1000})", re.IGNORECASE)
# With quotes, also behind a `>` in another attribute and on a line of its own.
_ATTRIBUTE: Final = re.compile(r"[\s\"'](?:href|src)\s{0,9}=\s{0,9}[\"']\s{0,9}([^\s\"'<>]{1,1000})", re.IGNORECASE)
_LINKS: Final = (_LINK, _DEFINITION, _HTML, _ATTRIBUTE)
# Some readers take a backslash for a slash. Before other punctuation, it only escapes.
_BACKSLASH: Final = re.compile(r"\\(?=[\w.])")
_FENCE: Final = re.compile(r"`{3,}|~{3,}")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_MORE_THAN_DASHES: Final = (
    "the first line has more than ---, which some readers refuse: "
    "remove the blanks after it, or the byte order mark before it"
)
_LONGEST_SCAN: Final = 1024 * 1024
_SECRETS: Final = (
    (re.compile(rb"-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----"), "a private key"),
    (re.compile(rb"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"), "an access key of AWS"),
    (re.compile(rb"\bgh[pousr]_[A-Za-z0-9]{36}\b|\bgithub_pat_[A-Za-z0-9_]{60,90}\b"), "a token of GitHub"),
    (re.compile(rb"\bsk-(?:ant-|proj-)?[A-Za-z0-9_-]{32,200}\b"), "a key of a model vendor"),
    (re.compile(rb"\bxox[abprs]-[A-Za-z0-9-]{20,200}\b"), "a token of Slack"),
    (re.compile(rb"\bAIza[0-9A-Za-z_-]{35}\b"), "an API key of Google"),
    (
        re.compile(rb"\beyJ[A-Za-z0-9_-]{10,1000}\.eyJ[A-Za-z0-9_-]{10,2000}\.[A-Za-z0-9_-]{10,1000}"),
        "a JSON web token",
    ),
)


class _Found(Protocol):
    """Makes a finding about the SKILL.md of one skill."""

    def __call__(self, level: Level, rule: str, message: str, key: str | None = None) -> LintFinding: ...


def load(folder: Path, prefix: str = "") -> LoadedFolder:
    """Load a folder of skills, or the one skill in it."""
    try:
        is_one = (folder / rules.SKILL_FILE).exists()
        loaded = (load_skill if is_one else load_skills)(str(folder.resolve()), prefix)
    except ServerError as error:
        raise UsageError(str(error)) from None
    if not loaded.skills and not loaded.problems:
        raise UsageError(f"there is no skill in {str(folder)!r}: a skill is a folder with a file {rules.SKILL_FILE}")
    return loaded


def skill_tokens(skill: LoadedSkill) -> int:
    """Estimate the tokens that a skill adds when a host loads it."""
    return count_tokens(skill.document.body)


def check(folder: Path, loaded: LoadedFolder) -> Iterator[LintFinding]:
    """Check every skill by itself, and the folder as a whole."""
    root = folder.resolve()
    for problem in loaded.problems:
        rule = "skill-folder" if problem.position is None else "skill-frontmatter"
        where = "" if problem.position is None else f"{problem.position.line}:{problem.position.column}"
        yield LintFinding("error", rule, _short(problem.file, root), where, problem.message)
    for left_out in loaded.left_out:
        yield LintFinding("hint", "not-served", _short(left_out.file, root), "", f"is not served ({left_out.reason})")
    by_name: defaultdict[str, list[str]] = defaultdict(list)
    for skill in loaded.skills:
        by_name[skill.name].append(skill.uri)
        yield from check_skill(skill, root)
    for name, uris in by_name.items():
        if len(uris) > 1:
            yield LintFinding("warning", "same-skill-name", name, "", f"is the name of {len(uris)} skills: rename one")
    if _is_without_gitattributes(root):
        yield LintFinding(
            "warning",
            "no-gitattributes",
            "",
            "",
            "git on Windows changes line endings, and so digests: add a .gitattributes with the line `* -text`",
        )


def check_skill(skill: LoadedSkill, root: Path) -> Iterator[LintFinding]:
    manifest = f"{skill.folder}/{rules.SKILL_FILE}"
    positions = skill.document.positions

    def found(level: Level, rule: str, message: str, key: str | None = None) -> LintFinding:
        place = positions.get(key) if key is not None else None
        where = "" if place is None else f"{place.line}:{place.column}"
        return LintFinding(level, rule, _short(manifest, root), where, message)

    own = next(file for file in skill.files if file.uri == skill.uri)
    data = own.read()
    for difference in yaml_differences(data):
        where = f"{difference.position.line}:{difference.position.column}"
        yield LintFinding("warning", "yaml-versions", _short(manifest, root), where, str(difference))
    if not data.startswith((b"---\n", b"---\r\n")):
        yield found("warning", "frontmatter-start", _MORE_THAN_DASHES)
    yield from _description(skill, found)
    for place, sentence in hostile_texts(dict(skill.document.frontmatter)):
        yield found("error", "hostile-text", f"{sentence} (in the {place[0]})", str(place[0]))
    for key in rules.reserved_metadata(skill.document.frontmatter):
        message = f"the metadata key {key} is reserved for extensions of the protocol: use another prefix"
        yield found("warning", "reserved-metadata", message, "metadata")
    metadata = skill.document.frontmatter.get("metadata")
    if metadata is not None and not (
        isinstance(metadata, dict) and all(isinstance(value, str) for value in metadata.values())
    ):
        # The Agent Skills specification: a map from strings to strings. Some clients refuse anything else.
        yield found(
            "error", "metadata-values", "metadata has other values than strings: put them in quotes", "metadata"
        )
    tokens = skill_tokens(skill)
    if tokens > _MANY_BODY_TOKENS:
        message = f"the body takes about {tokens:,} tokens when the skill is loaded: move parts into other files"
        yield found("warning", "large-skill", message)
    elif not skill.document.body.strip():
        yield found("warning", "empty-skill", "the body says nothing: write what to do")
    for sentence in hostile_text(skill.document.body):
        yield found("warning", "hostile-text", f"{sentence} (in the body)")
    for file in skill.files:
        yield from _file(skill, file, root)


def _description(skill: LoadedSkill, found: _Found) -> Iterator[LintFinding]:
    text = skill.description
    if len(text) > rules.MAX_DESCRIPTION:
        message = f"the description has {len(text):,} characters, and hosts take {rules.MAX_DESCRIPTION:,}"
        yield found("error", "long-description", message, "description")
    elif (tokens := count_tokens(text)) > _MANY_DESCRIPTION_TOKENS:
        message = f"the description takes about {tokens:,} tokens of every conversation: shorten it"
        yield found("warning", "large-description", message, "description")
    elif len(text.split()) < _FEW_WORDS:
        message = "the description says too little for a model to choose the skill"
        yield found("warning", "short-description", message, "description")
    elif _WHEN.search(text) is None:
        yield found("hint", "no-when", "the description does not say when to use the skill", "description")


def _file(skill: LoadedSkill, file: SkillFile, root: Path) -> Iterator[LintFinding]:
    name = _short(file.source, root)
    data = file.read()
    for sentence in hostile_text(file.path):
        yield LintFinding("error", "hostile-text", name, "", f"{sentence} (in the name of the file)")
    if file.is_executable and not data.startswith(b"#!"):
        yield LintFinding("hint", "executable-file", name, "", "has the executable bit, which is lost on the way")
    # In UTF-16, each character of a secret has a NUL beside it.
    plain = data.replace(b"\0", b"")
    for pattern, what in _SECRETS:
        match = pattern.search(plain)
        if match is not None:
            line = plain.count(b"\n", 0, match.start()) + 1
            message = f"has {what}, which every client would get: remove it, and revoke it"
            yield LintFinding("error", "secret", name, str(line), message)
    if file.path.endswith(".md"):
        yield from _links(skill, file, data, name)


def _links(skill: LoadedSkill, file: SkillFile, data: bytes, name: str) -> Iterator[LintFinding]:
    """Check the relative links of a Markdown file. They start at its own folder."""
    text = _without_fences(data[:_LONGEST_SCAN].decode("utf-8", "replace"))
    top = "/".join(skill.root.removeprefix("skill://").split("/"))
    paths = {unquote(each.uri.removeprefix("skill://")) for each in skill.files}
    folders = {unquote(each.removeprefix("skill://")) for each in skill.directories}
    folder = unquote(file.uri.removeprefix("skill://")).rpartition("/")[0]
    inside = folder.removeprefix(unquote(top)).strip("/")
    for match in sorted(chain.from_iterable(each.finditer(text) for each in _LINKS), key=re.Match.start):
        address = unescape(match[1])
        reference = _BACKSLASH.sub("/", unquote(address.partition("#")[0].partition("?")[0])).replace("\\", "")
        is_file = reference.lower().startswith("file:")
        if not reference or (_SCHEME.match(reference) and not is_file):
            continue
        where = str(text.count("\n", 0, match.start()) + 1)
        target = rules.resolve(f"{inside}/{reference}" if inside else reference)
        if is_file or reference.startswith("/") or target is None:
            yield LintFinding("error", "link-outside", name, where, f"{match[1][:100]} leads out of the skill")
        elif (full := f"{unquote(top)}/{target}".rstrip("/")) not in paths and full not in folders:
            yield LintFinding("warning", "broken-link", name, where, f"{match[1][:100]} is not a file of the skill")


def _is_without_gitattributes(folder: Path) -> bool:
    """Return whether a folder is in a git repository without .gitattributes above it."""
    for place in (folder, *folder.parents):
        if (place / ".gitattributes").is_file():
            return False
        if (place / ".git").exists():
            return True
    return False


def _short(file: str, root: Path) -> str:
    return file.removeprefix(f"{root}/")


def _without_fences(text: str) -> str:
    """Replace blocks of code by empty lines. A block without an end is text."""
    lines = text.split("\n")
    start, fence = 0, ""
    for at, line in enumerate(lines):
        found = _FENCE.match(line)
        if not fence:
            start, fence = at, "" if found is None else found[0]
        elif line.startswith(fence):
            lines[start : at + 1] = [""] * (at + 1 - start)
            fence = ""
    return "\n".join(lines)

"""Sixty skills in a folder, with frontmatter and files of every form that two libraries have to agree on."""

from __future__ import annotations

from pathlib import Path

#: Lines of frontmatter after the name. Both libraries read them, and have to read the same.
FRONTMATTER = [
    "description: Plain words",
    "description: 'It''s quoted: with a colon'",
    'description: "Double \\"quoted\\", with \\u00e9 and \\n a line"',
    "description: >\n  Folded over\n  two lines\n\n  and a paragraph",
    "description: >-\n  Folded and\n  stripped",
    "description: |\n  Kept as\n    it stands\n",
    "description: |-\n  Kept and stripped\n",
    "description: |+\n  Kept with its end\n\nlicense: MIT",
    "description: Continues on\n  the next line",
    "description: Grün, naïve, 日本語, עברית, русский ✨ 👩‍💻",
    "description: dates\nreleased: 2026-09-13",
    "description: moments\nreleased: 2026-09-13T12:30:00Z",
    "description: words\nbeta: yes\nstable: no\nnight: on\nday: off",
    "description: letters\ny: y\nn: n\nyes-please: Yes",
    "description: times\nat: 12:30\nlong: 1:30:00",
    "description: versions\nversion: 1.10\nother: 1.0\nthird: '1.10'",
    "description: octal\nmode: 0o17\nold: 0755\nzero: 0",
    "description: hexadecimal\ncolour: 0xff\ntext: '0xff'",
    "description: numbers\na: 1\nb: -7\nc: +3\nd: 3.5\ne: 1e3\nf: -2.5E-3\ng: .5\nh: 4.",
    "description: grouped\na: 1_000\nb: 0b101",
    "description: booleans\na: true\nb: False\nc: TRUE\nd: 'true'",
    "description: nothing\na: null\nb: ~\nc:\nd: ''\ne: Null",
    "description: large\na: 9007199254740991\nb: -9007199254740991",
    "description: list\ntags:\n  - one\n  - two: 2\n  - - nested\n  - 'three'",
    "description: compact list\ntags:\n- one\n- two",
    "description: flow\ntags: [one, 'two', 3, true, null]\nmap: {a: 1, b: [x, y]}",
    # The TypeScript SDK leaves a skill out whose metadata has other values than strings.
    "description: metadata\nmetadata:\n  author: acme\n  version: '2.1.0'\nnested:\n  deep: {er: [1, 2]}",
    "description: tools\nallowed-tools: Bash(git:*) Read",
    "description: licence\nlicense: Apache-2.0\ncompatibility: needs git",
    "description: comment # not part of it\nother: a#b",
    "# a comment first\n\ndescription: After a comment",
    "description: urls\nhomepage: https://example.com/a?b=c#d",
    "description: quotes inside 'a' and \"b\"",
    "description: punctuation a, b; c! d? (e) [f] {g}",
    "description: -dash at the beginning of a word",
    "description: 'leading: colon'\n'quoted key': 1",
    "description: empty collections\nlist: []\nmap: {}",
    "description: trailing spaces   \nother: x  ",
    "description: percent\nshare: 50%",
    "description: at\nhandle: a@b.example",
]

#: Ways in which the bytes of a SKILL.md may differ around the same words.
FORMS = ["plain", "crlf", "bom", "no end", "dashes in the body", "spaces after the dashes"]


def skill_md(name: str, frontmatter: str, form: str) -> bytes:
    body = "# How\n\nRead references/FORMS.md.\n"
    if form == "dashes in the body":
        body = "---\n\nnot: frontmatter\n\n---\n"
    text = f"---\nname: {name}\n{frontmatter}\n---\n{body}"
    if form == "no end":
        text = text.rstrip("\n")
    if form == "spaces after the dashes":
        text = text.replace("\n---\n#", "\n---  \n#")
    if form == "crlf":
        text = text.replace("\n", "\r\n")
    return (b"\xef\xbb\xbf" if form == "bom" else b"") + text.encode()


def make_skills(folder: Path, count: int = 60) -> dict[str, dict[str, bytes]]:
    """Write the skills; return the bytes of each by the path of the skill and of the file. Two of them are nested."""
    skills: dict[str, dict[str, bytes]] = {}
    for number in range(count):
        name = f"skill-{number}"
        frontmatter = FRONTMATTER[number % len(FRONTMATTER)]
        form = FORMS[number % len(FORMS)] if number >= len(FRONTMATTER) else "plain"
        path = f"skill-{number - 1}/{name}" if number in (31, 33) else name
        skills[path] = {
            "SKILL.md": skill_md(name, frontmatter, form),
            "references/FORMS.md": f"# Forms {number}\r\n\tÜ ✨\n".encode(),
            "assets/data.bin": bytes((number + each) % 256 for each in range(number * 7)),
            "assets/a b (1) ünï.txt": b"a name with spaces",
            "scripts/run.sh": b"#!/bin/sh\necho hello\n",
            "empty.md": b"",
            "latin.txt": b"caf\xe9",
        }
    for path, files in skills.items():
        for file, data in files.items():
            target = folder / path / file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
    return skills

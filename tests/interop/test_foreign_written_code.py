"""Written code of the descriptions in npm's `@readme/oas-examples`: it has types, and each tool calls its operation."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.command import Command
from tests.interop import peers

from toolwire import testing

ROOT = Path(__file__).parents[2]
EXAMPLES = peers.node_folder() / "node_modules" / "@readme" / "oas-examples"
# Descriptions whose operations cannot all be called: servers without an address, schemes that are not declared or need
# a certificate, two secrets for one header, nothing but webhooks.
REFUSED = 8


async def test_code_is_written_for_every_description(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    toolwire = Command(capsys, monkeypatch)
    sources = sorted(EXAMPLES.glob("[23].*/json/*.json"))
    assert len(sources) > 50
    refused: list[str] = []
    modules: list[Path] = []
    for number, source in enumerate(sources):
        folder = tmp_path / f"p{number}"
        done = toolwire("new", str(folder), "--from", str(source), "--all")
        if done.status:
            assert done.err.startswith("toolwire: "), done.err
            refused.append(f"{source.name}: {done.err}")
            continue
        for name in ("server", "models"):
            if (folder / f"{name}.py").exists():
                text = (folder / f"{name}.py").read_text().replace("from models", f"from p{number}_models")
                modules.append(folder / f"p{number}_{name}.py")
                modules[-1].write_text(text)
        monkeypatch.syspath_prepend(str(folder))
    assert len(refused) <= REFUSED, "\n".join(refused)
    checked = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--cache-dir",
            str(ROOT / ".mypy_cache" / "written"),
            *map(str, modules),
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": os.pathsep.join(str(each.parent) for each in modules)},
    )
    assert checked.returncode == 0, checked.stdout[-4_000:]
    for file in modules:
        if file.stem.endswith("_server"):
            specification = importlib.util.spec_from_file_location(file.stem, file)
            assert specification is not None and specification.loader is not None
            module = importlib.util.module_from_spec(specification)
            monkeypatch.setitem(sys.modules, file.stem, module)
            specification.loader.exec_module(module)
            assert await testing.replay(module.server, module.api)

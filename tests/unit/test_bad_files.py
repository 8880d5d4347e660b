"""Files that are not what a verb needs: one line that says so and exit code 2, never a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetplan.cli import main

CONTENTS = {
    "empty": b"",
    "latin": b"name: \xe9\xff",
    "utf-16": "a: 1".encode("utf-16"),
    "null": b"null",
    "a number": b"3",
    "a list": b"[]",
    "torn": b"a: [",
    "endless nesting": b"[" * 100_000,
    "control": b"\x00\x01",
    "page": b"<html>",
}
VERBS = {
    "calibrate json": ("x.json", ("calibrate", "FILE", "--model", "llama-3.1-8b", "--gpu", "h100-sxm")),
    "calibrate yaml": ("x.yaml", ("calibrate", "FILE", "--model", "llama-3.1-8b", "--gpu", "h100-sxm")),
    "calibrate csv": ("x.csv", ("calibrate", "FILE")),
    "points": ("x.csv", ("validate-model", "--points", "FILE")),
    "table": ("x.csv", ("validate-model", "--table", "FILE")),
    "calibration": ("x.yaml", ("validate-model", "--calibration", "FILE")),
    "steptime": (
        "x.yaml",
        ("steptime", "--model", "llama-3.1-8b", "--gpu", "h100-sxm", "--calibration", "FILE"),
    ),
    "model": ("x.json", ("model", "FILE")),
    "validate": ("x.yaml", ("validate", "FILE")),
    "capacity": ("x.yaml", ("capacity", "FILE")),
    "fleet": ("x.yaml", ("fleet", "FILE")),
    "trace": ("x.csv", ("trace", "summarise", "FILE")),
}


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("verb", VERBS)
def test_a_file_that_is_something_else_is_told(
    verb: str,
    content: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name, arguments = VERBS[verb]
    path = tmp_path / name
    path.write_bytes(CONTENTS[content])
    monkeypatch.setattr("sys.argv", ["fleetplan", *(str(path) if a == "FILE" else a for a in arguments)])
    with pytest.raises(SystemExit) as exit_:
        main()
    assert exit_.value.code == 2
    told = capsys.readouterr()
    assert name in told.err + told.out


def test_parts_that_are_not_there_do_not_empty_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "fleet.duckdb"
    store.write_bytes(b"as it was")
    monkeypatch.setattr(
        "sys.argv", ["fleetplan", "load", "--parts", str(tmp_path / "prats"), "--store", str(store)]
    )
    with pytest.raises(SystemExit) as exit_:
        main()
    assert exit_.value.code == 2
    assert "no such folder of parts" in capsys.readouterr().err
    assert store.read_bytes() == b"as it was"

"""Digests and fingerprints: what counts, and what does not."""

import pytest

from fleetplan import provenance
from fleetplan.cli import VERBS
from fleetplan.store.meaning import code_fingerprint


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of two modules, the second imported by the first inside a function."""
    (tmp_path / "low").mkdir()
    (tmp_path / "low/__init__.py").write_text('"""Low."""\n')
    (tmp_path / "low/deep.py").write_text("VALUE = 1\n")
    (tmp_path / "high.py").write_text(
        "def use():\n    from fleetplan.low.deep import VALUE\n    return VALUE\n"
    )
    (tmp_path / "other.py").write_text("import json\n")
    monkeypatch.setattr(provenance, "ROOT", tmp_path)

    def fingerprint():
        for cached in (provenance.fingerprint, provenance.imports, provenance._path, provenance._source):
            cached.cache_clear()
        return provenance.fingerprint("fleetplan.high")

    yield tmp_path, fingerprint
    monkeypatch.undo()
    fingerprint_caches = (provenance.fingerprint, provenance.imports, provenance._path, provenance._source)
    for cached in fingerprint_caches:
        cached.cache_clear()


@pytest.mark.parametrize(
    ("file", "text", "counts"),
    [
        ("low/deep.py", "VALUE = 2\n", True),
        ("low/deep.py", '"""Deep."""\n\n# why\nVALUE = 1\n"""What it is."""\n', False),
        ("low/__init__.py", "import json\n", True),
        ("low/__init__.py", '"""Lower."""\n', False),
        ("other.py", "import csv\n", False),
        ("high.py", "def use():\n    'Says.'\n    from fleetplan.low.deep import VALUE\n\n    return VALUE\n", False),
        ("high.py", "def use():\n    from fleetplan.low.deep import VALUE\n    return -VALUE\n", True),
        ("high.py", "def use():\n    from .low.deep import VALUE\n    return VALUE\n", True),
    ],
)  # fmt: skip
def test_the_fingerprint_changes_with_code_that_is_imported_and_only_then(package, file, text, counts):
    folder, fingerprint = package
    before = fingerprint()
    (folder / file).write_text(text)
    assert (fingerprint() != before) is counts


def test_what_an_earlier_process_read_is_remembered_and_counts_only_as_long_as_it_holds(package, monkeypatch):
    folder, fingerprint = package
    before = fingerprint()
    provenance._remembered.cache_clear()  # as another process begins
    monkeypatch.setattr(provenance.ast, "dump", lambda _: pytest.fail("nothing has to be read again"))
    assert fingerprint() == before
    monkeypatch.undo()
    monkeypatch.setattr(provenance, "ROOT", folder)
    (folder / "low/deep.py").write_text("VALUE = 11\n")
    provenance._remembered.cache_clear()
    assert fingerprint() != before
    next((folder / "__pycache__").glob("sources.*.json")).write_text("no JSON")
    (folder / "low/deep.py").write_text("VALUE = 1\n")
    provenance._remembered.cache_clear()
    assert fingerprint() == before


def test_a_digest_ignores_order_and_refuses_what_is_not_finite():
    assert provenance.digest({"a": 1, "b": 2.0}) == provenance.digest({"b": 2.0, "a": 1})
    assert provenance.digest([1, 2]) != provenance.digest([2, 1])
    with pytest.raises(ValueError, match="not JSON compliant"):
        provenance.digest({"a": float("nan")})


def test_a_fingerprint_follows_imports_however_lazy():
    assert "fleetplan.spec.scenario" in provenance.imports("fleetplan.cli.validate")
    assert "fleetplan.engine" not in provenance.imports("fleetplan.cli.validate")
    assert len({code_fingerprint(stage) for stage in ("candidates", "queueing", "load", "report")}) == 4
    assert {"load", "report"} <= set(VERBS)

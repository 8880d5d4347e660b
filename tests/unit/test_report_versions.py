"""Versions of a report: one page a meaning, written once; what changed is said; nothing half-written is left."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from fleetplan.cli.report import command
from fleetplan.errors import InputError
from fleetplan.report import charts, page, versions
from fleetplan.report.publish import publish


def _example() -> Any:
    path = Path(__file__).parents[1] / "browser" / "example_store.py"
    found = importlib.util.spec_from_file_location("example_store", path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


example = _example()


def _publish(folder: Path, *scenarios: Any, **options: Any) -> list[dict[str, Any]]:
    return publish(example.make(folder / "fleet.duckdb", *scenarios), folder / "reports", **options)


def _text(folder: Path, content: dict[str, Any]) -> str:
    """What a reader sees of a page: its body without markup, spaces made plain."""
    html = (folder / "reports" / content["path"]).read_text(encoding="utf-8")
    body = html[html.index("<body>") :].split("<script", 1)[0]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body).replace("&#39;", "'"))


def test_the_same_meaning_makes_no_new_version(tmp_path: Path) -> None:
    (first,) = _publish(tmp_path, example.feasible())
    path = tmp_path / "reports" / first["path"]
    before = path.stat().st_mtime_ns, path.read_bytes()
    (again,) = _publish(tmp_path, example.feasible())
    assert first["new"]
    assert not again["new"]
    assert (path.stat().st_mtime_ns, path.read_bytes()) == before
    assert len(again["versions"]) == 1


def test_where_it_comes_from_is_no_meaning(tmp_path: Path) -> None:
    """Code that changed and gave the same figures makes no new version."""
    rows = example.feasible()
    (first,) = _publish(tmp_path, rows)
    for part in rows["parts"]:
        part["code_fingerprint"] = "beef" * 16
    assert _publish(tmp_path, rows)[0]["digest"] == first["digest"]


def test_versions_count_up_and_a_return_is_a_new_version(tmp_path: Path) -> None:
    digests = [
        _publish(tmp_path, example.feasible(rate=rate, replicas=count))[0]["digest"]
        for rate, count in ((12, 7), (14, 8), (12, 7))
    ]
    (content,) = _publish(tmp_path, example.feasible())
    assert digests[0] == digests[2] != digests[1]
    assert [version["version"] for version in content["versions"]] == [3, 2, 1]
    assert content["path"] == f"support-chat/v003-{digests[0]}.html"
    stored = json.loads((tmp_path / "reports" / "support-chat" / "manifest.json").read_text())
    assert {key: stored[key] for key in ("scenario", "version", "digest", "path")} == {
        key: content[key] for key in ("scenario", "version", "digest", "path")
    }


def test_what_changed_is_said_item_by_item_and_in_total(tmp_path: Path) -> None:
    _publish(tmp_path, example.feasible())
    rows = example.feasible(rate=14, replicas=8)
    rows["candidates"] = [row for row in rows["candidates"] if row["candidate_id"] != "c4"]
    rows["candidates"][1]["reason"] = "costs more at its lower bound"
    rows["evidence"] = [row for row in rows["evidence"] if row["class"] != "search"]
    rows["settings"][2]["value"] = "1.2"
    rows["settings"].append({"scenario": "support-chat", "path": "policy.spare_replicas", "value": "1"})
    text = _text(tmp_path, _publish(tmp_path, rows)[0]).replace("\u202f", " ")
    for line in (
        "~ GPUs 16 → 18 +2 (+12.5 %)",
        "~ Cost per month $34,923/month → $39,289/month +$4,365/month (+12.5 %)",
        "~ workload.classes[chat].arrivals.rate_requests_per_s 12 → 14",
        "~ workload.classes[chat].slo.ttft.p99_s 1 → 1.2",
        "+ policy.spare_replicas 1",
        "− TTFT p99 of class search promise ≤ 2.00 s",
        "− H200 SXM × 2, bf16 can run",
        "~ H100 SXM × 4, bf16 can run → costs more at its lower bound",
    ):
        assert line in text, line


def test_from_feasible_to_infeasible_and_back(tmp_path: Path) -> None:
    _publish(tmp_path, example.feasible("x"))
    (second,) = _publish(tmp_path, example.infeasible("x"))
    text = _text(tmp_path, second)
    assert "Infeasible" in text
    assert "no number of replicas mends it" in text
    assert "− GPUs 16" in text
    (third,) = _publish(tmp_path, example.feasible("x"))
    assert "+ GPUs 16" in _text(tmp_path, third)


def test_an_infeasible_page_says_the_reason_and_no_count(tmp_path: Path) -> None:
    (content,) = _publish(tmp_path, example.infeasible())
    html = (tmp_path / "reports" / content["path"]).read_text(encoding="utf-8")
    text = _text(tmp_path, content)
    assert "TTFT of a lone request is 1.3 s where 500 ms is promised" in text
    assert '<p class="number">' not in html
    assert "infeasible" in (tmp_path / "reports" / "index.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "table", ["evidence", "rooflines", "bounds", "simulations", "candidates", "queueing", "speculation", "parts", "scenarios", "settings"]
)  # fmt: skip
def test_a_missing_table_becomes_a_sentence(tmp_path: Path, table: str) -> None:
    """Neither an empty nor an absent table breaks a page."""
    import duckdb

    rows = example.feasible()
    rows.pop(table, None)
    (first,) = _publish(tmp_path, rows)
    store = tmp_path / "fleet.duckdb"
    with duckdb.connect(str(store)) as connection:
        connection.execute(f"DROP TABLE {table}")
    (second,) = publish(store, tmp_path / "other")
    for content, folder in ((first, "reports"), (second, "other")):
        assert "16" in (tmp_path / folder / content["path"]).read_text(encoding="utf-8")
    assert first["digest"] == second["digest"]


def test_one_replica_and_a_missing_price(tmp_path: Path) -> None:
    """The smallest decision: N = 1 has no N − 1, no price list means no costs, an unbounded value has no ratio."""
    rows = example.feasible(replicas=1)
    decision = rows["decisions"][0]
    decision |= {name: None for name in decision if name.startswith("cost_")}
    decision |= {"spare_replicas": 0, "gpus": 2}
    rows["evidence"] = [row | {"holds": True} for row in rows["evidence"] if row["replicas"] == 1]
    text = _text(tmp_path, _publish(tmp_path, rows)[0])
    assert "One replica is the least that can serve" in text
    assert "no price list was given" in text
    assert "= 1 replica × 2 GPUs" in text


def test_hostile_texts_stay_texts(tmp_path: Path) -> None:
    """A label that looks like markup or like a template is shown as it is, in the page and in the index."""
    bad = """</script><script>alert(1)</script><b>"'&{{ 7*7 }}"""
    (content,) = _publish(tmp_path, example.feasible(label=bad, title=bad))
    for name in (content["path"], "index.html"):
        html = (tmp_path / "reports" / name).read_text(encoding="utf-8")
        assert "alert(1)</script>" not in html
        assert "{{ 7*7 }}" in html


@given(
    st.recursive(
        st.none() | st.booleans() | st.text(),
        lambda inner: st.dictionaries(st.text(), inner) | st.lists(inner),
    )
)
def test_embedded_json_reads_back_and_ends_no_element(value: Any) -> None:
    text = str(page.embedded(value))
    assert json.loads(text) == value
    assert "<" not in text
    assert "\u2028" not in text


def test_a_chart_refuses_more_points_than_it_should_hold() -> None:
    rows = [{"time_s": float(i), "value": 1.0, "series": "waiting"} for i in range(2001)]
    with pytest.raises(ValueError, match="aggregate"):
        charts.over_time(rows, "requests", ("waiting",))


def test_a_killed_write_leaves_the_old_state_and_the_next_run_mends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every point where a file is put in place, a stop leaves whole files only; the next run completes."""
    _publish(tmp_path, example.feasible())
    replace, reports = os.replace, tmp_path / "reports"
    for stop_at in range(3):
        calls = iter(range(99))

        def stopping(source: Any, target: Any, at: int = stop_at, calls: Any = calls) -> None:
            if next(calls) == at:
                raise KeyboardInterrupt
            replace(source, target)

        monkeypatch.setattr(os, "replace", stopping)
        with pytest.raises(KeyboardInterrupt):
            _publish(tmp_path, example.feasible(rate=20 + stop_at))
        monkeypatch.setattr(os, "replace", replace)
        assert not [path for path in reports.rglob(".*") if path.name != ".lock"]
        for path in reports.rglob("*.html"):
            assert path.read_text(encoding="utf-8").endswith("</html>\n"), path
        (content,) = _publish(tmp_path, example.feasible(rate=20 + stop_at))
        assert content["version"] == stop_at + 2
        assert content["path"] in (reports / "index.html").read_text(encoding="utf-8")


def test_a_deleted_manifest_comes_back_from_the_pages(tmp_path: Path) -> None:
    """Snakemake deletes a rule's output before it runs the rule: the versions must outlive that."""
    _publish(tmp_path, example.feasible())
    (before,) = _publish(tmp_path, example.feasible(rate=14))
    (tmp_path / "reports" / "support-chat" / "manifest.json").unlink()
    (after,) = _publish(tmp_path, example.feasible(rate=14))
    assert after["versions"] == before["versions"]


def test_reports_written_at_once_are_all_in_the_index(tmp_path: Path) -> None:
    names = [f"s{number}" for number in range(4)]
    store = example.make(tmp_path / "fleet.duckdb", *(example.feasible(name) for name in names))
    threads = [
        threading.Thread(target=publish, args=(store, tmp_path / "reports", (name,))) for name in names
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    index = (tmp_path / "reports" / "index.html").read_text(encoding="utf-8")
    assert all(f'href="{name}/v001-' in index for name in names)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--store", "nowhere.duckdb"], "nowhere.duckdb: there is no store"),
        (["--store", "text.duckdb"], "text.duckdb: cannot be read as a store"),
        (
            ["--store", "fleet.duckdb", "suport-chat"],
            "unknown scenario (got 'suport-chat'); near names: support-chat",
        ),
        (["--store", "empty.duckdb", "x"], "the store holds no decision"),
        (["--store", "odd.duckdb"], "cannot name a folder (got '../up')"),
    ],
)
def test_bad_input_is_an_error_that_says_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.duckdb").write_text("not a store, but long enough to be looked at as one " * 200)
    example.make(Path("fleet.duckdb"), example.feasible())
    example.make(Path("empty.duckdb"))
    example.make(Path("odd.duckdb"), example.feasible("../up"))
    result = CliRunner().invoke(command, arguments)
    assert isinstance(result.exception, InputError)
    assert line in str(result.exception)
    assert not list(tmp_path.rglob("*.html"))


def test_the_verb_prints_strict_json(tmp_path: Path) -> None:
    store = example.make(tmp_path / "fleet.duckdb", example.feasible(), example.infeasible())
    out = str(tmp_path / "reports")
    result = CliRunner().invoke(command, ["--store", str(store), "--out", out, "--json"])
    said = json.loads(result.output)
    assert [report["scenario"] for report in said["reports"]] == ["impossible", "support-chat"]
    assert all((Path(out) / report["path"]).is_file() for report in said["reports"])
    assert (
        "unchanged" in CliRunner().invoke(command, ["--store", str(store), "--out", out, "impossible"]).output
    )


def test_rewrite_draws_the_newest_version_again(tmp_path: Path) -> None:
    (first,) = _publish(tmp_path, example.feasible())
    path = tmp_path / "reports" / first["path"]
    path.write_text(path.read_text(encoding="utf-8").replace("What changed", "What chnged"), encoding="utf-8")
    (again,) = _publish(tmp_path, example.feasible(), rewrite=True)
    assert again["version"] == 1
    assert "What chnged" not in path.read_text(encoding="utf-8")


def test_the_page_allows_its_own_scripts_and_nothing_else(tmp_path: Path) -> None:
    (content,) = _publish(tmp_path, example.feasible())
    html = (tmp_path / "reports" / content["path"]).read_text(encoding="utf-8")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)
    assert policy is not None
    assert "default-src 'none'" in policy[1].replace("&#39;", "'")
    assert not re.search(r"""(src|href)=["'](https?:)?//""", html.split("<script>", 1)[0])


def test_a_page_that_is_no_page_of_ours_is_left_alone(tmp_path: Path) -> None:
    """A foreign file in the folder is neither counted nor touched."""
    _publish(tmp_path, example.feasible())
    foreign = tmp_path / "reports" / "support-chat" / "v9-notes.html"
    foreign.write_text("mine")
    (content,) = _publish(tmp_path, example.feasible(rate=14))
    assert content["version"] == 2
    assert foreign.read_text() == "mine"
    assert versions.found(tmp_path / "reports", "support-chat")[-1].number == 2

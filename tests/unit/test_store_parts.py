"""Parts and the store: types, order, nulls, equal bytes, comments, what is left out, questions."""

import json
import subprocess
import sys

import duckdb
import pytest
from click.testing import CliRunner

from fleetplan.cli import group
from fleetplan.errors import InputError
from fleetplan.store import parts, query, tables
from fleetplan.store.load import load
from fleetplan.store.tables.reference import reference

ONE = {
    "VARCHAR": "x",
    "BIGINT": 1,
    "DOUBLE": 1.5,
    "BOOLEAN": True,
    "DOUBLE[]": [1.5],
    "BIGINT[]": [1],
    "VARCHAR[]": ["x"],
}


def row(table, **values):
    layout = tables.table(table)
    return {c.name: ONE[c.type] for c in layout.columns if c.name != layout.subject} | values


def fill(folder, scenario):
    for table in tables.TABLES.values():
        if table.stage in tables.STAGES[:-1]:
            parts.write_part(folder, scenario, table.name, [row(table.name)], {"spec_digest": "d", "seed": 7})


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "it's [a] *"
    fill(place / "parts", "tiny")
    return place


def test_equal_rows_make_equal_bytes_in_key_order_whatever_order_they_came_in(tmp_path):
    rows = [row("evidence", replicas=n, percentile=p) for n in (3, 1, 2) for p in (99, 50)]
    one = parts.write_part(tmp_path / "1", "s", "evidence", rows, {"seed": 1, "spec_digest": "a'b"})
    two = parts.write_part(tmp_path / "2", "s", "evidence", rows[::-1], {"spec_digest": "a'b", "seed": 1})
    assert one.read_bytes() == two.read_bytes()
    read = parts.read_part(tmp_path / "1", "s", "evidence")
    assert [(r["replicas"], r["percentile"]) for r in read] == [
        (n, p) for n in (1, 2, 3) for p in (50.0, 99.0)
    ]
    assert read[0]["scenario"] == "s"
    assert parts.read_meta(one) == {"seed": "1", "spec_digest": "a'b"}


def test_no_rows_make_a_valid_part(tmp_path):
    parts.write_part(tmp_path, "s", "evidence", [], {})
    assert parts.read_part(tmp_path, "s", "evidence") == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"replicas": 1.5}, "replicas is 1.5"),
        ({"replicas": True}, "replicas is True"),
        ({"replicas": 2**63}, "beyond 64 bits"),
        ({"replicas": None}, "may not be null"),
        ({"limit_s": float("nan")}, "not finite"),
        ({"simulated_s": float("inf")}, "not finite"),
        ({"limit_s": "1"}, "not a number"),
        ({"holds": 1}, "not a truth value"),
        ({"class": 1}, "not a text"),
        ({"other": 1}, "not in the data dictionary: other"),
        ({"scenario": "t"}, "scenario is 't'"),
    ],
)  # fmt: skip
def test_a_row_that_is_not_as_the_dictionary_says_is_refused(tmp_path, change, says):
    with pytest.raises(ValueError, match=says.replace("(", r"\(")):
        parts.write_part(tmp_path, "s", "evidence", [row("evidence") | change], {})
    assert list(tmp_path.rglob("*.parquet")) == []


def test_a_missing_column_and_a_double_key_are_refused(tmp_path):
    short = row("evidence")
    del short["limit_s"]
    with pytest.raises(ValueError, match="missing limit_s"):
        parts.write_part(tmp_path, "s", "evidence", [short], {})
    with pytest.raises(ValueError, match="two rows have the key"):
        parts.write_part(tmp_path, "s", "evidence", [row("evidence"), row("evidence")], {})


def test_the_store_has_a_comment_and_a_key_everywhere_and_opens_in_older_clients(folder):
    load(folder / "parts", folder / "fleet.duckdb")
    with duckdb.connect(str(folder / "fleet.duckdb"), read_only=True) as connection:
        bare = connection.execute(
            "SELECT table_name FROM duckdb_columns() WHERE NOT internal AND comment IS NULL "
            "UNION ALL SELECT table_name FROM duckdb_tables() WHERE comment IS NULL OR NOT has_primary_key"
        ).fetchall()
        tags = connection.execute("SELECT tags FROM duckdb_databases() WHERE NOT internal").fetchall()[0][0]
        names = {name for (name,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
    assert bare == []
    assert tags["storage_version"].startswith("v1.0.0")
    assert names == set(tables.TABLES)


def test_without_evidence_its_tables_are_there_and_empty(folder):
    load(folder / "parts", folder / "fleet.duckdb", evidence_dir=folder / "none")
    assert query.ask("SELECT count(*) FROM accuracy", folder / "fleet.duckdb").rows == [(0,)]


def test_loading_again_gives_the_same_rows(folder):
    store = folder / "fleet.duckdb"
    load(folder / "parts", store)
    before = {name: query.ask(f"SELECT * FROM {name}", store).rows for name in tables.TABLES}
    store.unlink()
    load(folder / "parts", store)
    assert {name: query.ask(f"SELECT * FROM {name}", store).rows for name in tables.TABLES} == before
    assert query.ask("SELECT DISTINCT spec_digest, seed FROM parts", store).rows == [("d", 7)]


def test_what_has_no_spec_or_is_not_whole_is_left_out_and_said(folder):
    fill(folder / "parts", "gone")
    fill(folder / "parts", "half")
    parts.part_path(folder / "parts", "half", "decisions").unlink()
    done = load(folder / "parts", folder / "s.duckdb", ["tiny"], known=["tiny", "half"])
    assert done.scenarios == ("tiny",)
    assert "no spec" in done.left_out["gone"]
    assert "run `fleetplan sizing`" in done.left_out["half"]
    with pytest.raises(InputError, match="decisions is missing"):
        load(folder / "parts", folder / "s.duckdb", ["half"])
    with pytest.raises(InputError, match="near names: tiny"):
        load(folder / "parts", folder / "s.duckdb", ["tinny"])


def test_parts_of_no_whole_scenario_make_no_store(tmp_path):
    (tmp_path / "parts/half/sizing").mkdir(parents=True)
    with pytest.raises(InputError, match="no scenario is complete") as said:
        load(tmp_path / "parts", tmp_path / "s.duckdb")
    assert "half: incomplete" in said.value.lines[1]
    assert not (tmp_path / "s.duckdb").exists()


def test_a_failed_load_leaves_the_store_that_was_there(folder):
    store = folder / "fleet.duckdb"
    load(folder / "parts", store)
    before = store.read_bytes()
    parts.part_path(folder / "parts", "tiny", "decisions").write_bytes(b"PAR1 not really")
    with pytest.raises(InputError, match=r"decisions\.parquet: cannot be read"):
        load(folder / "parts", store)
    assert store.read_bytes() == before
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


def ask(*arguments):
    return CliRunner().invoke(group, ["sql", *map(str, arguments)])


def test_answers_come_as_table_csv_and_strict_json(folder):
    store = folder / "fleet.duckdb"
    load(folder / "parts", store)
    question = "SELECT 'a,b' AS t, 'nan'::DOUBLE AS x, 1 AS x, [1.0, 'inf'::DOUBLE] AS l, DATE '2026-08-01' AS d, NULL AS n"
    strict = json.loads(ask(question, "--json", "--store", store).output, parse_constant=pytest.fail)
    assert strict == [{"t": "a,b", "x": None, "x_1": 1, "l": [1.0, None], "d": "2026-08-01", "n": None}]
    assert ask("SELECT 'a,b' AS t, NULL AS n", "--format", "csv", "--store", store).output == 't,n\n"a,b",\n'
    assert ask("SELECT 7 AS seven", "--store", store).output.split() == ["seven", "-------", "7"]


@pytest.mark.parametrize(
    ("question", "says"),
    [
        ("SELECT * FROM decision", 'Did you mean "decisions"'),
        ("SELEC 1", "syntax error"),
        ("", "the query is empty"),
        ("DELETE FROM decisions", "read-only"),
        ("COPY (SELECT 1) TO 'x.csv'", "disabled by configuration"),
        ("SELECT * FROM 'x.csv'", "disabled by configuration"),
    ],
)  # fmt: skip
def test_a_wrong_question_is_answered_by_a_sentence(folder, question, says):
    load(folder / "parts", folder / "fleet.duckdb")
    with pytest.raises(InputError, match=says):
        query.ask(question, folder / "fleet.duckdb")


def test_a_missing_store_a_broken_one_and_a_locked_one_are_told_apart(folder, tmp_path):
    with pytest.raises(InputError, match="run `make plan`"):
        query.ask("SELECT 1", tmp_path / "none.duckdb")
    broken = tmp_path / "broken.duckdb"
    broken.write_bytes(b"no store at all" * 1000)
    with pytest.raises(InputError, match="is not a DuckDB store"):
        query.ask("SELECT 1", broken)


def test_a_lock_conflict_names_the_process(folder):
    store = folder / "fleet.duckdb"
    load(folder / "parts", store)
    code = "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(store)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(InputError, match=f"process {holder.pid} holds it open"):
            query.ask("SELECT 1", store, wait_s=0.2)
        holder.communicate()
    assert query.ask("SELECT 1", store).rows == [(1,)]


def test_the_page_of_tables_is_the_dictionary(project):
    assert (project / "docs/tables.md").read_text() == reference(), (
        "docs/tables.md has drifted: run `make schema`"
    )

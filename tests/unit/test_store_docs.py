"""README.md and CONTRIBUTING.md say what is there."""

import re
import tomllib

import pytest

from fleetplan.cli import VERBS
from fleetplan.store.tables import OF_FLEETS, STAGES, TABLES


def rows(text):
    """First and last cell of every table row."""
    return {
        cells[0].strip(" `"): cells[-1].strip()
        for line in text.splitlines()
        if line.startswith("| ") and (cells := line.strip("|").split("|"))
    }


def test_the_readme_lists_every_verb_in_the_words_of_the_command_line(project):
    listed = rows((project / "README.md").read_text())
    assert {verb: listed.get(verb) for verb in VERBS} == {verb: text for verb, (_, text) in VERBS.items()}
    assert listed.keys() - VERBS.keys() == {"verb"}


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_every_path_and_target_that_a_page_names_is_there(project, page):
    text = (project / page).read_text()
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link]
    named = re.findall(r"`((?:src|data|docs|tests|schemas)/[\w./-]*)`", text)
    assert {path for path in links + named if not (project / path).exists()} == set()
    targets = set(re.findall(r"^([a-z][a-z-]*):", (project / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z]+)\b(?= |`|\n|;|,)", text)) - targets <= {"and"}


def test_the_queries_of_the_readme_name_columns_that_are_there(project):
    queries = re.findall(r'sql "SELECT (.+?) FROM (\w+)"', (project / "README.md").read_text())
    assert queries
    for columns, table in queries:
        known = {column.name for column in TABLES[table].columns}
        assert set(columns.split(", ")) <= known


def test_every_dependency_has_its_reason(project):
    declared = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    names = {
        re.match(r"[\w.-]+", line)[0]
        for line in declared["dependencies"] + declared["optional-dependencies"]["dev"]
    }
    listed = rows((project / "CONTRIBUTING.md").read_text())
    assert set(listed) - {"dependency"} == names
    assert all(listed.values())


def test_the_lock_pins_every_dependency_by_hash_and_names_no_address(project):
    lock = (project / "requirements.lock").read_text()
    declared = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    pinned = set(re.findall(r"^([\w.-]+)==", lock, re.MULTILINE))
    names = {
        re.match(r"[\w.-]+", line)[0].replace(".", "-").replace("_", "-")
        for line in declared["dependencies"] + declared["optional-dependencies"]["dev"]
    }
    assert names - pinned == set()
    assert "://" not in lock
    blocks = re.split(r"^(?=[\w.-]+==)", lock, flags=re.MULTILINE)[1:]
    assert [block.split()[0] for block in blocks if "--hash=sha256:" not in block] == []


def test_a_stage_is_a_verb_and_a_rule(project):
    rules = set(
        re.findall(
            r"^rule (\w+):",
            "\n".join(path.read_text() for path in (project / "workflow/rules").glob("*.smk")),
            re.MULTILINE,
        )
    )
    assert rules == {*STAGES, *OF_FLEETS, "report", "validate_model"}
    assert {rule.replace("_", "-") for rule in rules} <= set(VERBS)

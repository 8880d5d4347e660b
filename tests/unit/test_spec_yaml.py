"""Scalars by the core schema of YAML 1.2, places, and what a text editor may leave in a file."""

import math
from pathlib import Path

import pytest

from fleetplan.errors import InputError
from fleetplan.spec.document import MOST_DEPTH, parse

SCALARS = [
    ("1e3", 1000.0), ("1e-3", 0.001), ("1.0e6", 1e6), ("no", "no"), ("yes", "yes"), ("on", "on"), ("Off", "Off"),
    ("017", 17), ("0o17", 15), ("0x1F", 31), ("12:30:45", "12:30:45"), ("2026-08-01", "2026-08-01"), ("3.10", 3.1),
    ("1_000", "1_000"), ("+5", 5), ("-5", -5), (".5", 0.5), ("5.", 5.0), ("true", True), ("True", True),
    ("TRUE", True), ("tRue", "tRue"), ("false", False), (".inf", math.inf), ("-.INF", -math.inf), ("'5'", "5"),
    ('"no"', "no"), ("1 s", "1 s"), ("!!str 5", "5"), ("0b11", "0b11"), ("1e", "1e"), ("<<", "<<"), ("=", "="),
]  # fmt: skip


@pytest.mark.parametrize(("written", "value"), SCALARS, ids=[w for w, _ in SCALARS])
def test_scalar(written: str, value: object) -> None:
    got = parse(f"k: {written}\n".encode(), "f").value["k"]
    assert got == value
    assert type(got) is type(value)


def test_nan_is_a_float() -> None:
    assert math.isnan(parse(b"k: .nan", "f").value["k"])


@pytest.mark.shared
def test_handed_file_of_yaml_traps(shared: Path) -> None:
    text = (shared / "minimal/yaml_sci_and_norway.yaml").read_bytes()
    assert parse(text, "f").value == {
        "workload": {"rate": 1000.0, "slo": {"ttft_ms": 500.0}},
        "region": "no",
        "model": 3.1,
    }


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "bom"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("last", [True, False], ids=["newline", "no-newline"])
def test_line_ends_and_marks_change_nothing(mark: bytes, end: bytes, last: bool) -> None:
    lines = [b"a: 1", b"b:", b"  - x: 2", b"    y: [3, {z: 4}]"]
    document = parse(mark + end.join(lines) + (end if last else b""), "f")
    assert document.value == {"a": 1, "b": [{"x": 2, "y": [3, {"z": 4}]}]}
    assert document.place(("b", 0, "y", 1, "z")) == (4, 16)
    assert document.place(("b", 0, "y", 1, "z"), key=True) == (4, 13)
    assert document.place(("b", 0, "q")) == (3, 5)


REFUSED = [
    ("a: 1\n---\nb: 2\n", "f:2:1: begins a second document"),
    ("a:\n\tb: 1\n", "f:2:1: has a tab"),
    ("a: b: c\n", "f:1:5: has a second ': '"),
    ("a: @x\n", "f:1:4: has a character that no value can begin with"),
    ("a: !!python/object x\n", "f:1:4: has a tag"),
    ("a: *b\n", "f:1:4: refers to an unknown anchor"),
    ("a: &a [*a]\n", "f:1:4: contains itself"),
    ("? [1, 2]\n: 3\n", "f:1:3: has a key that is not text"),
    ("a: \x07\n", "f:1:4: has a control character"),
    ("", "f:1:1: is empty"),
    ("# only a comment\n", "f:1:1: is empty"),
    ("a: " + "[" * (MOST_DEPTH + 1) + "]" * (MOST_DEPTH + 1), "is nested deeper"),
    (b"a: 1\nb: caf\xe9\n", "f:2:7: is not UTF-8 (got byte 0xe9)"),
    ("a: 1\n".encode("utf-16"), "f:1:1: is not UTF-8 (got a UTF-16"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "says"), REFUSED, ids=[s[:28] for _, s in REFUSED])
def test_refused(text: str | bytes, says: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(text if isinstance(text, bytes) else text.encode(), "f")
    assert says in str(caught.value)


def test_aliases_cannot_blow_up() -> None:
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    with pytest.raises(InputError, match="grows beyond"):
        parse("\n".join(lines).encode(), "f")


def test_anchors_may_be_used() -> None:
    assert parse(b"a: &x {p99: 1 s}\nb: *x\n", "f").value["b"] == {"p99": "1 s"}


def test_faults_that_leave_the_rest_readable_are_collected() -> None:
    faults = parse(b"a: 1\na: 2\nb:\nc: ~\n", "f").faults
    assert [(place, loc) for place, loc, _ in faults] == [
        ((2, 1), ("a",)),
        ((3, 1), ("b",)),
        ((4, 1), ("c",)),
    ]

"""What a scenario means: defaults, SI, promises, references, and that writing it otherwise changes nothing."""

import json
from pathlib import Path

import jsonschema
import pytest

from fleetplan.errors import InputError
from fleetplan.spec import load, loads
from fleetplan.spec.schema import schema

SPEC = """
scenario: support-chat
title: Support chat
model: llama-3.3-70b
workload:
  classes:
    - name: chat
      arrivals: {process: poisson, rate: 12 req/s}
      prompt_tokens: {lognormal: {mean: 1200, p99: 6000}}
      output_tokens: {geometric: {mean: 250, max: 2048}}
      shared_prefix: {tokens: 800, share: 0.9}
      slo: {ttft: {p99: 1 s}, tpot: {p95: 40 ms}}
candidates:
  gpu: [h100-sxm, h200-sxm]
  tensor_parallel: [2, 4, 8]
  weights: [bf16, fp8]
  kv_cache: [fp8]
  scheduler: [{policy: chunked, max_num_batched_tokens: 8192, max_num_seqs: 256}]
  speculation: [none, {draft: eagle3, tokens: 3, acceptance: [0.75, 0.70, 0.66]}]
policy: {max_utilisation: 0.8, spare_replicas: 1, prices: on-demand-2026-08}
"""
CLASS = "      slo: {ttft: {p99: 1 s}, tpot: {p95: 40 ms}}\n"


def test_promises_and_values_in_si() -> None:
    scenario = loads(SPEC)
    (slo,) = scenario.slos().values()
    assert slo is not None
    assert [(p.name, p.fraction, p.limit_s) for p in slo.promises()] == [
        ("ttft_p99", 0.99, 1.0),
        ("tpot_p95", 0.95, 0.04),
    ]
    assert scenario.workload.classes[0].arrivals.rate_per_s == 12.0
    drafts = scenario.candidates.speculation[1]
    assert drafts != "none"
    assert drafts.by_position == (0.75, 0.7, 0.66)


SAME = {
    "comment": SPEC + "# a comment\n",
    "title": SPEC.replace("Support chat", "Another title"),
    "unit": SPEC.replace("1 s}", "1000 ms}"),
    "default written out": SPEC + "seed: 0\n",
    "number": SPEC.replace("mean: 1200", "mean: 1.2e3"),
    "flow": SPEC.replace("tensor_parallel: [2, 4, 8]", "tensor_parallel:\n    - 2\n    - 4\n    - 8"),
    "order": "policy: {prices: on-demand-2026-08, max_utilisation: 0.8, spare_replicas: 1}\n"
    + SPEC[: SPEC.index("\npolicy:") + 1],
    "engine by name or mapping": SPEC.replace("candidates:", "candidates:\n  engine: [{name: vllm}]"),
    "crlf": SPEC.replace("\n", "\r\n"),
}


@pytest.mark.parametrize("text", SAME.values(), ids=SAME.keys())
def test_the_same_meaning(text: str) -> None:
    assert json.dumps(loads(text).meaning()) == json.dumps(loads(SPEC).meaning())


OTHER = {
    "rate": SPEC.replace("12 req/s", "13 req/s"),
    "promise": SPEC.replace("1 s}", "1.1 s}"),
    "order of a list": SPEC.replace("[2, 4, 8]", "[8, 4, 2]"),
    "seed": SPEC + "seed: 1\n",
}


@pytest.mark.parametrize("text", OTHER.values(), ids=OTHER.keys())
def test_another_meaning(text: str) -> None:
    assert loads(text).meaning() != loads(SPEC).meaning()


def test_meaning_is_strict_json() -> None:
    json.dumps(loads(SPEC).meaning(), allow_nan=False)


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("1200, p99: 6000", "200000, p99: 600000", 9, "longer than the model's context"),
        ("[h100-sxm, h200-sxm]", "[h100-sxm, H100 SXM]", 14, "is the same GPU"),
        ("kv_cache: [fp8]", "kv_cache: [fp9]", 17, ": unknown KV cache dtype (got 'fp9')"),
        ("[bf16, fp8]", "[bf16, f8]", 16, "unknown"),
        (CLASS, CLASS.replace("1 s}", "{base: 1 s}}"), 12, "per_prompt_token"),
        (CLASS, CLASS.replace("p99: 1 s", "p50: 2 s, p99: 1 s"), 12, "promises less time at p99"),
        (CLASS, CLASS.replace("p99: 1 s", "p99.90: 1 s"), 12, "write it p99.9"),
        (CLASS, CLASS + "      empirical: azure-2023-conv\n", 13, "give one or the other"),
    ],
)
def test_what_does_not_fit_together(old: str, new: str, line: int, says: str) -> None:
    with pytest.raises(InputError) as caught:
        loads(SPEC.replace(old, new), "f.yaml")
    (only,) = caught.value.lines
    assert only.startswith(f"f.yaml:{line}:"), only
    assert says in only


def test_percentiles_between_the_nines() -> None:
    scenario = loads(SPEC.replace("p99: 1 s", "p99.9: 1 s"))
    (slo,) = scenario.slos().values()
    assert slo is not None
    assert slo.promises()[0].fraction == 0.999


def test_a_limit_that_grows_with_the_prompt() -> None:
    scenario = loads(SPEC.replace("p99: 1 s", "p99: {base: 300 ms, per_prompt_token: 0.2 ms/token}"))
    (slo,) = scenario.slos().values()
    assert slo is not None
    promise = slo.promises()[0]
    assert (promise.limit_s, promise.per_prompt_token_s) == (0.3, 0.0002)


def test_files_start_from_the_folder_of_the_spec(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x", encoding="utf-8")
    start = SPEC.index("workload:")
    end = SPEC.index("candidates:")
    text = SPEC[:start] + "workload: {trace: t.csv, slo: {e2e: {p50: 9 s}}}\n" + SPEC[end:]
    spec = tmp_path / "s.yaml"
    spec.write_text(text, encoding="utf-8")
    assert load(spec).files() == {"workload.trace": tmp_path / "t.csv"}
    spec.write_text(text.replace("t.csv", "u.csv"), encoding="utf-8")
    with pytest.raises(InputError, match=r"workload\.trace: names a file that is not there"):
        load(spec)


def test_late_faults_have_their_line_too() -> None:
    line = loads(SPEC, "f.yaml").line(("workload", "classes", 0, "prompt_tokens"), "no (got x), y")
    assert line == "f.yaml:9:22: workload.classes[0].prompt_tokens: no (got x), y"


def test_shipped_specs_are_valid_by_the_schema_too(project: Path) -> None:
    from fleetplan.spec.document import read

    names = ("scenario.v1.json", "endpoint.v1.json")
    validators = {name: jsonschema.Draft202012Validator(schema(name)) for name in names}
    for name, validator in validators.items():
        validator.check_schema(schema(name))
    for path in sorted((project / "data/scenarios").rglob("*.yaml")):
        first = path.read_text(encoding="utf-8").splitlines()[0]
        assert "yaml-language-server: $schema=" in first
        assert list(validators[first.rpartition("/")[2]].iter_errors(read(path).value)) == []
    broken = read(Path(__file__).parent / "broken_specs" / "missing_unit.yaml")
    assert list(validators["scenario.v1.json"].iter_errors(broken.value))

"""What no one means is refused where it stands: exponents and units that are slips, and faults of a whole section at their own line."""

import pytest
from click.testing import CliRunner

from fleetplan import spec
from fleetplan.cli.capacity import command as capacity
from fleetplan.errors import InputError
from fleetplan.sizing import decide
from fleetplan.spec.units import KINDS, LIMITS, Quantity
from fleetplan.traffic import traces
from fleetplan.traffic.facts import summarise

SPEC = """scenario: limits
model: llama-3.1-8b
workload:
  classes:
    - name: chat
      arrivals: {process: poisson, rate: 12 req/s}
      prompt_tokens: 1000
      output_tokens: 200
      slo: {ttft: {p99: 1 s}}
candidates:
  gpu: [h100-sxm]
policy:
  prices: on-demand-2026-08
"""


def told(old: str, new: str) -> str:
    assert old in SPEC
    with pytest.raises(InputError) as caught:
        spec.loads(SPEC.replace(old, new), "f.yaml")
    assert len(caught.value.lines) == 1
    return caught.value.lines[0]


POWER = "  prices: on-demand-2026-08\n  power: {pue: 1.2, electricity: 0.1 USD/kWh}\n  ownership: {gpu: 30000 USD, amortisation: 4 year, "


@pytest.mark.parametrize(
    ("old", "new", "where", "says"),
    [
        ("  prices: on-demand-2026-08\n", POWER + "interest_per_year: 1e30}\n", "15:72", "must be at most 1 (got 1e+30), a share is written like 0.8"),
        ("rate: 12 req/s", "rate: 1e9 req/s", "6:42", "at most 10000000 req/s is taken"),
        ("rate: 12 req/s", "rate: 1e-9 req/s", "6:42", "at least 0.001 req/day is taken"),
        ("p99: 1 s", "p99: 1e-12 s", "9:25", "at least 1 ns is taken"),
        ("p99: 1 s", "p99: 1e9 year", "9:25", "at most 100 year is taken"),
        ("prompt_tokens: 1000", "prompt_tokens: {lognormal: {mean: 1e12, cv: 1}}", "7:41", "at most 1,000,000,000 (got 1e12"),
        ("prompt_tokens: 1000", "prompt_tokens: {lognormal: {mean: 1000, p99: 50000}}", "7:22", "cannot be (got a lognormal of mean 1000, p99 50000), no lognormal has these two"),
        ("prompt_tokens: 1000", "prompt_tokens: {pareto: {alpha: 2, scale: 100, max: 10}}", "7:49", "has a scale above max"),
        ("process: poisson, rate: 12 req/s", "process: hawkes, rate: 1 req/s, branching: 0.5, decay: 2 year", "6:73", "at most 1 day is taken"),
        ("process: poisson, rate: 12 req/s", "process: mmpp, states: [{rate: 1 req/s, mean_stay: 1 s}]", "6:41", "must have two states or more (got 1)"),
        ("      slo: {ttft", "      max_output_tokens: 1\n      slo: {tpot", "10:19", "promises tpot with outputs of one token"),
        ("policy:", "step_time: {affine: {fixed: 0 s, prefill: 0 s/token, decode: 1 ms/sequence}}\npolicy:", "12:29", "has steps that take no time"),
        ("p99: 1 s", "p0.5: 1 s, p00.7: 2 s", "9:31", "write it p0.7"),
        ("gpu: [h100-sxm]", "gpu: [h100-sxm]\n  tensor_parallel: [100000]", "12:21", "at most 4,096 (got 100000)"),
        ("on-demand-2026-08\n", "on-demand-2026-08\n  uncertainty: {rate_cv: 1e6}\n", "14:26", "at most 10"),
        ("on-demand-2026-08\n", "on-demand-2026-08\n  uncertainty: {price_range: {low: 1.2, high: 1.3}}\n", "14:36", "must be a factor above 0 and at most 1 (got 1.2), like 0.8"),
        ("on-demand-2026-08\n", "on-demand-2026-08\n  uncertainty: {price_range: {low: 0.8, high: 0.9}}\n", "14:47", "must be a factor from 1 to 100 (got 0.9), like 1.3"),
    ],
)  # fmt: skip
def test_slips_are_told_where_they_stand(old: str, new: str, where: str, says: str) -> None:
    line = told(old, new)
    assert line.startswith(f"f.yaml:{where}: "), line
    assert says in line.replace("1000000000000.0", "1e12"), line


TWO = "    - name: {}\n      {}\n      prompt_tokens: 9\n      output_tokens: 9\ncandidates:"


@pytest.mark.parametrize(
    ("old", "new", "where", "says"),
    [
        ("candidates:", TWO.format("chat", "arrivals: {process: poisson, rate: 1 req/s}"), "10:13", "workload.classes[1].name: is the name of an earlier class too (got chat)"),
        ("candidates:", TWO.format("code", "priority: 1"), "10:7", "workload.classes[1]: has no arrivals (class code)"),
        ("      output_tokens: 200\n", "      output_tokens: {uniform: {min: 9, max: 3}}\n", "8:46", "has max below min"),
        ("p99: 1 s", "p50: 2 s, p99: 1 s", "9:35", "promises less time at p99"),
        ("gpu: [h100-sxm]", "gpu: [h100-sxm, h100-sxm]", "11:19", "candidates.gpu[1]: names 'h100-sxm' twice"),
    ],
)  # fmt: skip
def test_faults_of_a_whole_section_are_told_at_their_line(old: str, new: str, where: str, says: str) -> None:
    line = told(old, new)
    assert line.startswith(f"f.yaml:{where}: "), line
    assert says in line


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("rate: 12 req/s", "rate: 1e6 req/s", "f.yaml:4:3: workload: has 3e+08 requests in the 300 s of one simulation"),
        ("policy:", "simulation: {horizon: 100 s, warm_up: 99.999999 s}\npolicy:", "has promises and no request to judge them by (got none of chat"),
        ("policy:", "simulation: {horizon: 1 s, warm_up: 2 s}\npolicy:", "f.yaml:12:37: simulation.warm_up: must be shorter than the horizon"),
        ("      slo", "      sessions: {turns: 3, gap: 10 h}\n      slo", "f.yaml:9:33: workload.classes[0].sessions.gap: makes sessions last 7.2e+04 s"),
    ],
)  # fmt: skip
def test_traffic_that_no_simulation_can_hold_is_told(old: str, new: str, says: str) -> None:
    subject = spec.loads(SPEC.replace(old, new), "f.yaml")
    with pytest.raises(InputError) as caught:
        decide.plan(subject)
    assert says in caught.value.lines[0]


def test_shares_that_do_not_sum_are_told_at_the_last() -> None:
    text = SPEC.replace("      arrivals: {process: poisson, rate: 12 req/s}\n", "      share: 0.5\n")
    text = text.replace(
        "candidates:",
        TWO.format("code", "share: 0.4").removesuffix("candidates:")
        + "  arrivals: {process: poisson, rate: 9 req/s}\ncandidates:",
    )
    with pytest.raises(InputError) as caught:
        spec.loads(text, "f.yaml")
    assert caught.value.lines == (
        "f.yaml:11:14: workload.classes[1].share: is the last of shares that sum to 0.9 (got chat 0.5, code 0.4), they must sum to 1",
    )


@pytest.mark.parametrize("kind", LIMITS)
def test_limits_are_quantities_of_their_kind(kind: str) -> None:
    assert set(LIMITS) == set(KINDS)
    for text in LIMITS[kind]:
        if text is not None:
            assert Quantity(kind).read(text) > 0


@pytest.mark.parametrize(
    ("draft", "reason"),
    [
        ("qwen2.5-3b", "has a vocabulary of 151,936 tokens and Llama-3.1-8B one of 128,256"),
        ("llama-3.2-1b", None),
    ],
)
def test_a_draft_of_another_vocabulary_cannot_run(draft: str, reason: str | None) -> None:
    text = SPEC.replace(
        "gpu: [h100-sxm]",
        f"gpu: [h100-sxm]\n  speculation: [{{draft: {draft}, tokens: 3, acceptance: [0.7]}}]",
    )
    (built,) = decide.plan(spec.loads(text, "f.yaml")).machines.values()
    if reason is None:
        assert built.reason is None
    else:
        assert built.reason is not None
        assert reason.lower() in built.reason.lower()


def test_a_draft_that_reads_less_than_the_longest_request_cannot_run() -> None:
    text = SPEC.replace("llama-3.1-8b", "mixtral-8x7b").replace("prompt_tokens: 1000", "prompt_tokens: {}")
    drafted = "gpu: [h100-sxm]\n  tensor_parallel: [4]\n  speculation: [{draft: llama-2-7b, tokens: 3, acceptance: [0.7]}]"
    reasons = []
    for prompt in (3000, 5000):
        subject = decide.plan(
            spec.loads(
                text.replace("prompt_tokens: {}", f"prompt_tokens: {prompt}").replace(
                    "gpu: [h100-sxm]", drafted
                ),
                "f.yaml",
            )
        )
        reasons += [built.reason for built in subject.machines.values()]
    assert reasons == [
        None,
        "candidates.speculation: the draft llama-2-7b reads at most 4,096 tokens, and the longest request of the traffic has 5,200; "
        "take a draft of a longer context, or shorter requests",
    ]


def test_multi_token_prediction_needs_its_layers() -> None:
    line = told(
        "gpu: [h100-sxm]", "gpu: [h100-sxm]\n  speculation: [{draft: mtp, tokens: 1, acceptance: [0.7]}]"
    )
    assert line.startswith(
        "f.yaml:12:25: candidates.speculation[0].draft: drafts by multi-token prediction (got mtp), and "
    )
    assert "has no such layers; take another draft, like eagle3" in line


def test_capacity_of_an_endpoint_is_told_at_its_line(project) -> None:  # type: ignore[no-untyped-def]
    path = project / "data/scenarios/examples/embeddings.yaml"
    run = CliRunner().invoke(capacity, [str(path)])
    assert isinstance(run.exception, InputError)
    assert ":" in run.exception.lines[0]
    file, line, column, rest = run.exception.lines[0].split(":", 3)
    assert (file, rest.split(":")[0].strip()) == (str(path), "endpoint")
    assert path.read_text(encoding="utf-8").splitlines()[int(line) - 1][int(column) - 1 :]


def test_a_trace_shorter_than_a_minute_has_no_peak_minute(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "short.csv"
    rows = "\n".join(f"{t},100,10" for t in range(13))
    path.write_text(f"arrival_s,prompt_tokens,output_tokens\n{rows}\n")
    found = summarise(traces.read(path))
    assert found.span_s == 12
    assert found.peak_minute_per_s is None
    assert found.peak_second_per_s == 1
    assert "it lasts 12 s, too short for a peak minute" in found.notes

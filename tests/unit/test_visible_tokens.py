"""Time to first visible token: after hidden ones, in records, summaries, promises, bounds and decisions."""

from pathlib import Path

import numpy as np
import pytest

from fleetplan import spec
from fleetplan.engine import EngineConfig, Outage, Promise, Speculation, simulate
from fleetplan.engine.files import read_requests, write_records
from fleetplan.errors import InputError
from fleetplan.physics.steptime import affine
from fleetplan.sizing import decide
from fleetplan.sizing.verdict import Limit, sample
from fleetplan.traffic.requests import Requests

COST = affine(0.005, 2e-5, 5e-4)
PREFILL_S, STEP_S = 0.005 + 100 * 2e-5, 0.005 + 5e-4


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("hidden", [0, 1, 7, 39, 40, 50])
def test_a_lone_request_shows_its_first_token_after_the_hidden_ones(hidden: int, plain: bool) -> None:
    run = simulate(Requests.of([0.0], 100, 40, hidden_tokens=hidden), COST, EngineConfig(), plain=plain)
    expected = PREFILL_S + hidden * STEP_S if hidden < 40 else np.nan
    np.testing.assert_allclose(run.ttfvt_s, [expected], rtol=1e-9)


def test_drafts_bring_it_forward() -> None:
    config = EngineConfig(speculation=Speculation.of([1.0], 4, draft_cost=0.0))
    run = simulate(Requests.of([0.0], 100, 40, hidden_tokens=12), COST, config)
    # Tokens 2 to 6, 7 to 11, 12 to 16: the 13th comes with the third step.
    assert run.ttfvt_s[0] == pytest.approx(PREFILL_S + 3 * (STEP_S + 4 * 2e-5))


def test_the_summary_leaves_out_who_shows_nothing_and_counts_who_gave_up() -> None:
    requests = Requests.of(
        [0.0, 0.0, 0.0], 100, 40, hidden_tokens=[0, 10, 40], timeout_s=[np.inf, np.inf, np.inf]
    )
    run = simulate(requests, COST, EngineConfig(max_num_seqs=3))
    figures = run.summary({"all": [Promise("ttfvt", 99, 0.2)]})
    assert figures["ttfvt_p99_s"] == pytest.approx(float(np.nanmax(run.ttfvt_s)))
    assert figures["ttfvt_p50_s"] == pytest.approx(float(np.nanmin(run.ttfvt_s)))
    assert figures["attainment"] == 1.0
    late = simulate(
        Requests.of([0.0, 0.0], 100, 40, hidden_tokens=5, timeout_s=[np.inf, 1e-3]),
        COST,
        EngineConfig(max_num_seqs=1),
    )
    assert np.isinf(late.ttfvt_s[1])
    assert late.summary()["reasons"]["ttfvt_p99_s"].startswith("unbounded")


def test_the_verdict_judges_those_that_show_a_token() -> None:
    requests = Requests.of([0.0, 0.0, 0.0], 100, 40, hidden_tokens=[0, 10, 40])
    run = simulate(requests, COST, EngineConfig())
    found = sample(
        run, Limit("all", "ttfvt", "p95", 0.95, (("ttfvt", float(run.ttfvt_s[0]) * 1.01, 0.0),)), 0.0
    )
    assert (found.count, found.met) == (2, 1.0)
    both = sample(
        run, Limit("all", "attainment", "95%", 0.95, (("ttft", 1.0, 0.0), ("ttfvt", 0.001, 0.0))), 0.0
    )
    assert (both.count, both.met) == (3, 1.0)  # the one that hides all breaks no TTFVT


def test_files_have_it(tmp_path: Path) -> None:
    (tmp_path / "requests.csv").write_text(
        "arrival_s,prompt_tokens,output_tokens,hidden_tokens\n0,100,40,3\n0,100,5,5\n0,9,4,\n"
    )
    requests, order = read_requests(tmp_path / "requests.csv")
    assert requests.hidden_tokens.tolist() == [3, 5, 0]
    run = simulate(requests, COST, EngineConfig())
    write_records(run, order, tmp_path / "out.csv")
    header, *rows = [line.split(",") for line in (tmp_path / "out.csv").read_text().splitlines()]
    column = header.index("first_visible_s")
    assert float(rows[0][column]) == pytest.approx(run.first_visible_s[0])
    assert rows[1][column] == ""
    assert float(rows[2][column]) == pytest.approx(run.first_token_s[2])
    (tmp_path / "bad.csv").write_text("arrival_s,prompt_tokens,output_tokens,hidden_tokens\n0,100,40,-1\n")
    with pytest.raises(InputError, match="hidden_tokens is wrong"):
        read_requests(tmp_path / "bad.csv")


SPEC = """
scenario: thinking
model: llama-3.1-8b
workload:
  classes:
    - name: agent
      arrivals: {process: poisson, rate: 8 req/s}
      prompt_tokens: 400
      output_tokens: 100
      reasoning_tokens: 300
      slo: {ttft: {p95: 1 s}, %(promise)s}
candidates: {gpu: [h100-sxm]}
step_time: {roofline: {efficiency: 0.5}}
policy: {prices: on-demand-2026-08, spare_replicas: 0, uncertainty: {draws: 0}}
simulation: {horizon: 60 s, replications: 1}
seed: 5
"""


def decided(promise: str) -> decide.Decision:
    return decide.decide(decide.plan(spec.loads(SPEC % {"promise": promise}, "thinking.yaml")))


def test_a_promise_on_it_is_what_the_fleet_is_sized_for() -> None:
    loose, tight = decided("ttfvt: {p95: 20 s}"), decided("ttfvt: {p95: 3.9 s}")
    assert loose.chosen is not None
    assert tight.chosen is not None
    assert loose.verdict is not None
    assert loose.verdict.latencies_s["ttfvt_p99_s"] > loose.verdict.latencies_s["ttft_p99_s"]  # type: ignore[operator]
    assert tight.chosen.found.replicas >= loose.chosen.found.replicas  # type: ignore[union-attr, operator]
    hopeless = decided("ttfvt: {p95: 1 s}")
    assert hopeless.chosen is None
    assert hopeless.options[0].reason.startswith("TTFVT p95 of agent")


def test_a_part_of_a_result_keeps_what_is_known_by_request() -> None:
    """A promise of TTFVT through an outage is judged on the requests that arrived meanwhile."""
    requests = Requests.of(np.arange(20) * 0.05, 100, 40, hidden_tokens=np.arange(20) * 2)
    run = simulate(requests, COST, EngineConfig(retries=1), outages=[Outage(0, 0.2, 0.4)])
    rows = run.arrival_s >= 0.5
    part = run.take(rows)
    for name in ("ttft_s", "ttfvt_s", "tpot_s", "e2e_s", "restarts", "attempts", "outcome"):
        np.testing.assert_array_equal(getattr(part, name), getattr(run, name)[rows])
    limit = Limit("all", "ttfvt", "p50", 0.5, (("ttfvt", 0.3, 0.0),))
    assert sample(part, limit, 0.0).count == rows.sum()
    assert part.counts() == run.counts(rows)

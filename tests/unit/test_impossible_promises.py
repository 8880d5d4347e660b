"""Promises that no count keeps: they are told as such, and the nearest change, once made, is enough."""

import json
import re
from typing import Any

import numpy as np
import pytest

from fleetplan.engine import EngineConfig, simulate
from fleetplan.physics.steptime import affine
from fleetplan.sizing.decide import Decision, decide, plan
from fleetplan.sizing.nearest import nearest_change
from fleetplan.sizing.verdict import Limit, pool, sample
from fleetplan.spec import loads
from fleetplan.traffic.requests import Requests


def decided(slo: dict[str, Any], scheduler: dict[str, Any] | None = None, **of_class: Any) -> Decision:
    chat = {
        "name": "chat",
        "arrivals": {"process": "poisson", "rate": "2 req/s"},
        "prompt_tokens": {"uniform": {"min": 100, "max": 1000}},
        "output_tokens": {"uniform": {"min": 2, "max": 40}},
        "slo": slo,
    } | of_class
    spec = {
        "scenario": "impossible",
        "model": "llama-3.1-8b",
        "workload": {"classes": [chat]},
        "candidates": {"gpu": ["h100-sxm"], "scheduler": [scheduler or {"max_num_seqs": 64}]},
        "step_time": {"roofline": {"efficiency": 0.5, "overhead": "1 ms"}},
        "policy": {"prices": "on-demand-2026-08", "max_utilisation": 1.0},
        "simulation": {"horizon": "200 s", "replications": 2},
    }
    return decide(plan(loads(json.dumps(spec))))


def told(decision: Decision) -> str:
    assert decision.chosen is None
    reason, change = nearest_change(decision)
    assert "no number of replicas mends it" in reason
    return change


ONE = [
    ({"ttft": {"p95": "{} ms"}}, "TTFT p95 of chat", 1),
    ({"tpot": {"p95": "{} ms"}}, "TPOT p95 of chat", 1),
    ({"itl": {"p99": "{} ms"}}, "ITL p99 of chat", 2),
    ({"e2e": {"p90": "{} ms"}}, "E2E p90 of chat", 5),
    ({"ttft": {"p95": {"base": "{} ms", "per_prompt_token": "1 us/token"}}}, "TTFT p95 of chat with a base", 1),
    ({"attainment": {"share": 0.9, "ttft": "{} ms", "e2e": "5 s"}}, "TTFT in attainment 90.00% of chat", 1),
    ({"attainment": {"share": 0.9, "e2e": "{} ms"}}, "attainment 90.00% of chat", 5),
    ({"attainment": {"share": 0.9, "tpot": "{} ms"}}, "attainment 90.00% of chat", 1),
]  # fmt: skip


@pytest.mark.parametrize(("slo", "name", "promised"), ONE, ids=[name for _, name, _ in ONE])
def test_the_nearest_change_names_a_limit_that_can_be_kept(
    slo: dict[str, Any], name: str, promised: int
) -> None:
    def promising(milliseconds: object) -> Decision:
        return decided(json.loads(json.dumps(slo).replace("{}", str(milliseconds))))

    change = told(promising(promised))
    found = re.search(rf"{name} of at least ([0-9.]+) ms \(promised {promised} ms\)", change)
    assert found is not None, change
    least = float(found[1])
    assert told(promising(f"{least * 0.97:.4g}"))
    # On few replicas requests disturb each other a little; what has a replica to itself is within the limit.
    assert promising(f"{least * 1.02:.4g}").chosen is not None


def test_every_promise_that_must_give_way_is_named() -> None:
    change = told(decided({"ttft": {"p99": "1 ms"}, "tpot": {"p95": "1 ms"}, "itl": {"p99": "2 ms"}}))
    assert [name in change for name in ("TTFT p99", "TPOT p95", "ITL p99")] == [True] * 3


@pytest.mark.parametrize(
    ("scheduler", "of_class"),
    [
        ({"max_queued_requests": 0}, {}),
        ({"max_queued_tokens": 500}, {}),
        ({}, {"timeout": "2 ms"}),
    ],
    ids=["no queue at all", "prompts longer than the queue", "who gives up before the prompt is done"],
)
@pytest.mark.parametrize("metric", ["ttft", "tpot", "itl", "e2e"])
def test_who_is_never_served_keeps_no_promise(
    metric: str, scheduler: dict[str, Any], of_class: dict[str, Any]
) -> None:
    change = told(decided({metric: {"p95": "20 s"}}, {"max_num_seqs": 64, **scheduler}, **of_class))
    assert f"serves at least 95% of what {metric.upper()} p95 of chat judges" in change


def test_gaps_of_refused_requests_are_misses() -> None:
    requests = Requests.of(np.zeros(4), 10, [5, 5, 5, 1])
    run = simulate(
        requests, affine(0.01, 1e-6, 1e-4), EngineConfig("chunked", 1, max_queued_requests=2), plain=True
    )
    limit = Limit("all", "itl", "p99", 0.99, (("itl", 1.0, 0.0),))
    assert run.counts()["rejected"] == 2
    got = sample(run, limit, 0.0)
    # Two finish with four gaps each; one would have had four, and an answer of one token counts as one.
    assert (got.count, got.met) == (13, 8.0)
    outcome = pool(limit, [got, got], 0.95)
    assert not outcome.holds
    assert outcome.value_s is None

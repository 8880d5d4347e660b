"""Candidates that cache prefixes: simulated with what their traffic shares, from the spec to the decision."""

import dataclasses

import pytest

from fleetplan import spec
from fleetplan.errors import InputError
from fleetplan.sizing import decide, levers
from fleetplan.sizing.decide import Plan
from fleetplan.sizing.machine import Machine
from fleetplan.sizing.stages import candidates as candidate_rows

SPEC = """
scenario: shared
model: llama-3.1-8b
workload:
  classes:
    - name: chat
      arrivals: {process: poisson, rate: 12 req/s}
      prompt_tokens: 4096
      output_tokens: {geometric: {mean: 100, max: 400}}
      shared_prefix: {tokens: 3584, count: 4}
      slo: {ttft: {p95: 1 s}, tpot: {p95: 40 ms}}
candidates:
  gpu: [h100-sxm]
  scheduler: [{policy: chunked, max_num_seqs: 256}]
  engine: [%s]
step_time: {roofline: {efficiency: 0.6}}
policy: {prices: on-demand-2026-08, spare_replicas: 0}
simulation: {horizon: 60 s, replications: 1}
seed: 5
"""


def planned(engine: str) -> Plan:
    return decide.plan(spec.loads(SPEC % engine, "shared.yaml"))


def only(subject: Plan) -> Machine:
    (built,) = subject.machines.values()
    return built


def test_a_cache_serves_the_same_traffic_with_fewer_replicas() -> None:
    plain, cached = planned("vllm"), planned("{name: vllm, prefix_caching: true}")
    assert only(plain).config.prefix_cache is None  # type: ignore[union-attr]
    run = only(cached).run(cached.traffic.requests(), 2)
    assert run.summary()["prefix_hit_share"] == pytest.approx(3584 / 4096, abs=0.02)
    without, with_cache = decide.decide(plain, replications=1), decide.decide(cached, replications=1)
    assert without.chosen is not None
    assert with_cache.chosen is not None
    assert with_cache.chosen.fleet.replicas < without.chosen.fleet.replicas  # type: ignore[union-attr]
    assert with_cache.chosen.machine.candidate.label.endswith("prefix cache")
    assert any("no candidate caches prefixes" in note for note in plain.traffic.notes)
    assert any("are shared where a candidate caches" in note for note in cached.traffic.notes)
    ways = levers._run_otherwise(without.chosen.machine.candidate, without)
    assert [change for kind, change, _ in ways if kind == "prefix cache"] == ["prefix cache"]


def test_bounds_leave_alive_what_only_a_cache_lets_live() -> None:
    """A lone prompt of 4,096 tokens takes 0.11 s; with a prefix of 3,584 cached it can have its first token in 60 ms."""
    tight = SPEC.replace("ttft: {p95: 1 s}", "ttft: {p95: 60 ms}")
    alone = decide.plan(spec.loads(tight % "vllm", "shared.yaml"))
    cached = decide.plan(spec.loads(tight % "{prefix_caching: true}", "shared.yaml"))
    mix = alone.traffic.requests()
    assert only(alone).lone(mix).ttft_s.min() > 0.06
    assert only(cached).lone(mix).ttft_s.max() < 0.06
    assert only(cached).least_work_s(mix) < only(alone).least_work_s(mix)


def test_tiers_are_counted_in_blocks_of_the_whole_engine() -> None:
    """A block of Llama-3.1-8B in bf16 is 16 · 131,072 B: 100 GB hold 47,683 of them, and each takes 84 µs at 25 GB/s."""
    tiers = "{name: vllm, prefix_caching: {host: 100 GB, host_link: 25 GB/s, router: prefix_affine}}"
    built = only(planned(tiers))
    assert built.router == "prefix_affine"
    cache = built.config.prefix_cache  # type: ignore[union-attr]
    assert cache is not None
    assert cache.host_blocks == int(100e9 / (16 * 131072))
    assert cache.host_block_s == pytest.approx(16 * 131072 / 25e9)
    assert cache.disk_blocks == 0
    assert built.candidate.label.endswith("prefix cache + host")


def test_an_id_without_a_cache_is_what_it_was() -> None:
    off, on = only(planned("vllm")).candidate, only(planned("{prefix_caching: true}")).candidate
    assert off.candidate_id == dataclasses.replace(on, prefix_caching="").candidate_id
    assert off.candidate_id != on.candidate_id
    rows = candidate_rows.rows(planned("{prefix_caching: true}"))["candidates"]  # type: ignore[attr-defined]
    assert [row["prefix_caching"] for row in rows] == [True]


@pytest.mark.parametrize(
    ("engine", "told"),
    [
        ("{prefix_caching: {host: 100 GB}}", "host and host_link together"),
        ("{prefix_caching: {disk: 1 TB, disk_link: 6 GB/s}}", "through the host"),
        ("{prefix_caching: always}", "true, false or a mapping"),
    ],
)
def test_what_a_spec_cannot_say(engine: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        planned(engine)


def test_levers_on_the_share_of_prompts_with_a_common_prefix() -> None:
    shared = SPEC.replace("count: 4}", "count: 4, share: 0.9}").replace("12 req/s", "60 req/s")
    subject = decide.plan(spec.loads(shared % "{name: vllm, prefix_caching: true}", "shared.yaml"))
    decision = decide.decide(subject, replications=1)
    found = {lever.change: lever for lever in levers.levers(decision) if lever.kind == "prefix share"}
    assert set(found) == {
        "share of prompts with a common prefix: chat 72% instead of 90%",
        "share of prompts with a common prefix: chat 100% instead of 90%",
    }
    fewer, more = (
        lever.decision.chosen.fleet.replicas  # type: ignore[union-attr]
        for lever in found.values()
    )
    assert decision.chosen is not None
    assert decision.chosen.fleet is not None
    assert fewer > decision.chosen.fleet.replicas >= more

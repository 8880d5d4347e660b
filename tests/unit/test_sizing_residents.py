"""LoRA adapters, swap and clients that send again: from the spec to candidates, decisions and levers."""

import dataclasses

import numpy as np
import pytest

from fleetplan import catalog, spec
from fleetplan.errors import InputError
from fleetplan.physics.weights import Adapters, adapter_bytes, adapter_matrices
from fleetplan.sizing import decide, levers
from fleetplan.sizing.candidates import expand
from fleetplan.sizing.decide import Plan
from fleetplan.sizing.machine import Machine
from fleetplan.sizing.stages import candidates as candidate_rows
from fleetplan.sizing.stages.sizing import _plan

SPEC = """
scenario: tenants
model: llama-3.1-8b
workload:
  classes:
    - name: chat
      arrivals: {process: poisson, rate: %(rate)s req/s}
      prompt_tokens: 1024
      output_tokens: {geometric: {mean: 100, max: 400}}
      slo: {ttft: {p95: 1 s}}
%(more)s
candidates:
  gpu: [h100-sxm]
  scheduler: [%(schedulers)s]
step_time: {roofline: {efficiency: 0.6}}
policy: {prices: on-demand-2026-08, spare_replicas: 0, uncertainty: {draws: 0}}
simulation: {horizon: 60 s, replications: 1}
seed: 5
"""
ADAPTERS = "      adapters: {count: 200, zipf: 1.1, rank: 16}"
FEW = "{max_num_seqs: 256, max_adapters: 4, adapter_load: 30 ms}"


def planned(*schedulers: str, more: str = ADAPTERS, rate: float = 12) -> Plan:
    text = SPEC % {"schedulers": ", ".join(schedulers), "more": more, "rate": rate}
    return decide.plan(spec.loads(text, "tenants.yaml"))


def only(subject: Plan) -> Machine:
    (built,) = subject.machines.values()
    return built


def test_an_adapter_takes_the_parameters_of_the_paper() -> None:
    """Rank 16 on all linear layers of Llama-3.1-8B: 41,943,040 parameters, two bytes each."""
    shape = catalog.model("llama-3.1-8b").architecture
    names = adapter_matrices(shape)
    assert names == ("q", "k", "v", "o", "ffn up", "ffn gate", "ffn down")
    assert adapter_bytes(shape, Adapters(16, 1, names), 1) == 2 * 41_943_040
    # Over two GPUs A of q, k, v, gate, up and B of o, down stay whole: 16 · 32 layers of these in- or outputs.
    whole = 16 * 32 * (4096 * 3 + 4096 + 4096 * 2 + 4096)
    split = 41_943_040 - whole
    assert adapter_bytes(shape, Adapters(16, 1, names), 2) == 2 * (whole + split / 2)


def test_what_every_gpu_holds_whole_has_whole_adapters() -> None:
    shape = catalog.model("deepseek-v3").architecture
    latent = Adapters(8, 1, ("kv down",))
    assert adapter_bytes(shape, latent, 8) == adapter_bytes(shape, latent, 1) == 61 * 8 * (7168 + 576) * 2


def test_adapters_take_room_and_time() -> None:
    """64 places of rank 16 are 5 GiB, a load at 25 GB/s 3.36 ms."""
    plan = planned(FEW, "{max_num_seqs: 256, max_adapters: 64, adapter_link: 25 GB/s}", "{max_num_seqs: 256}")
    few, many, none = plan.machines.values()
    assert [m.memory.adapters_bytes / 2**30 for m in (few, many)] == [5 / 16, 5.0]  # type: ignore[union-attr]
    assert few.config.kv_blocks - many.config.kv_blocks == 2400  # type: ignore[union-attr,operator]
    assert few.config.adapter_load_s == 0.03  # type: ignore[union-attr]
    assert many.config.adapter_load_s == pytest.approx(2 * 41_943_040 / 25e9)  # type: ignore[union-attr]
    assert none.reason == (
        "the traffic has LoRA adapters, and its scheduler does not say how many are resident; give max_adapters"
    )
    rows = candidate_rows.rows(plan)["candidates"]  # type: ignore[attr-defined]
    assert [row["max_adapters"] for row in rows] == [4, 64, None]
    assert rows[1]["adapters_bytes"] == 5 * 2**30
    assert many.candidate.label.endswith("64 adapters resident")


def test_few_places_need_more_replicas_and_the_lever_says_so() -> None:
    plan = planned(FEW)
    found = decide.decide(plan, replications=1)
    assert found.chosen is not None
    ways = {
        c: other
        for kind, c, other in levers._run_otherwise(only(plan).candidate, found)
        if kind == "adapters"
    }
    assert list(ways) == ["8 adapters resident", "200 adapters resident", "2 adapters resident"]
    more = levers._candidate(found, "adapters", "200", ways["200 adapters resident"]).decision
    assert more is not None
    assert more.chosen is not None
    assert more.chosen.fleet.replicas < found.chosen.fleet.replicas  # type: ignore[union-attr]


def test_popularity_is_drawn_by_share_name_and_session() -> None:
    more = """      adapters: {shares: {acme: 0.5, beta: 0.25}, rank: 8}
    - name: batch
      arrivals: {process: poisson, rate: 12 req/s}
      prompt_tokens: 100
      output_tokens: 10
      adapters: {shares: {gamma: 0.5, acme: 0.5}, rank: 32, targets: [q]}
    - name: own
      arrivals: {process: poisson, rate: 4 req/s}
      prompt_tokens: 100
      output_tokens: 10
      sessions: {turns: 4, gap: 1 s}
      adapters: {count: 10, share: 0.5, rank: 8}"""
    plan = planned(FEW, more=more)
    mix = plan.traffic.requests()
    chat, batch, own = (mix.adapter_id[mix.class_index == k] for k in range(3))
    assert {(-1, 0, 1), (0, 2)} == {tuple(np.unique(ids).tolist()) for ids in (chat, batch)}
    for ids, adapter, share in ((chat, 0, 0.5), (chat, 1, 0.25), (batch, 2, 0.5), (own, -1, 0.5)):
        error = (share * (1 - share) / len(ids)) ** 0.5 * (2 if ids is own else 1)  # four turns are one draw
        assert abs((ids == adapter).mean() - share) < 5 * error
    assert own.max() > 2
    assert np.unique(own[own >= 0]).min() >= 3
    session = mix.session_id[mix.class_index == 2]
    assert all(len(np.unique(own[session == one])) == 1 for one in np.unique(session))
    built = only(plan)
    # the largest rank and the matrices of all classes, in each of four places
    shape = catalog.model("llama-3.1-8b").architecture
    assert built.memory.adapters_bytes == adapter_bytes(shape, Adapters(32, 4, adapter_matrices(shape)), 1)  # type: ignore[union-attr]


def test_swap_is_counted_in_blocks_of_the_whole_engine() -> None:
    """A block is 16 · 131,072 B: 64 GB hold 30,517 of them, and each takes 84 µs at 25 GB/s."""
    built = only(planned("{preemption: {swap: 64 GB, link: 25 GB/s}}", more=""))
    assert built.config is not None
    assert (built.config.preemption, built.config.swap_blocks) == ("swap", int(64e9 / (16 * 131072)))
    assert built.config.swap_block_s == pytest.approx(16 * 131072 / 25e9)
    assert built.candidate.label.endswith("swap to 64 GB")
    small = only(planned("{preemption: {swap: 1 MB, link: 25 GB/s}}", more=""))
    assert small.reason is not None
    assert small.reason.startswith("preemption swaps to 1 MB of the host, which hold no KV block of 2.1 MB")


def test_a_swap_lever_is_there_where_sequences_give_way() -> None:
    def preemption(name: str) -> list[str]:
        plan = planned(name, more="")
        found = decide.decide(plan, replications=1)
        assert found.chosen is not None
        assert found.verdict is not None
        pressed = dataclasses.replace(found.verdict, preemptions_per_request=0.1)
        tight = dataclasses.replace(found.chosen.found, verdicts={found.verdict.replicas: pressed})
        found = dataclasses.replace(found, chosen=dataclasses.replace(found.chosen, found=tight))
        ways = levers._run_otherwise(only(plan).candidate, found)
        return [change for kind, change, _ in ways if kind == "preemption"]

    assert preemption("{policy: chunked}") == ["swapped to 64 GB of the host over 25 GB/s"]
    assert preemption("{preemption: {swap: 8 GB, link: 25 GB/s}}") == ["computed again, not swapped"]


def test_clients_that_send_again_are_counted_once() -> None:
    more = "      timeout: 1 s\n  clients: {retries: 3, backoff: 200 ms, growth: 1.5}"
    plan = planned("{max_num_seqs: 64, max_queued_requests: 4}", more=more, rate=60)
    built = only(plan)
    assert built.config is not None
    assert built.config.backoffs_s == pytest.approx((0.2, 0.3, 0.45))
    mix = plan.traffic.requests()
    run = built.run(mix, 1)
    assert len(run.outcome) == len(mix)
    assert run.attempts is not None
    assert run.attempts.max() == 4
    rate = decide.sustainable_rate_per_s(built, plan.traffic)
    verdict = decide.verdict_at(built, plan, rate, 1)
    assert verdict.attempts_per_request == pytest.approx(run.attempts.mean())
    # A request is a miss once, whoever sent it how often, and its time runs from its first attempt.
    late = mix.arrival_s >= plan.traffic.warmup_s
    met = run.ttft_s[late] <= 1.0
    assert verdict.outcomes[0].requests == late.sum()
    assert verdict.outcomes[0].met_share == pytest.approx(met.mean())
    assert any("count each request once" in note for note in plan.traffic.notes)
    assert built.open_door().config.retries == 0  # type: ignore[union-attr]
    found = decide.decide(plan, replications=1)
    assert found.chosen is not None
    assert _plan(found.chosen, found)["attempts_per_request"] >= 1
    assert only(planned("{}", more="")).config.retries == 0  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("scheduler", "more", "told"),
    [
        (FEW, ADAPTERS + "\n      answers: 2\n    - {name: b, priority: 1, arrivals: {process: poisson, rate: 1 req/s}, prompt_tokens: 9, output_tokens: 9}",
         "is not simulated together with several answers or with LoRA adapters"),
        ("{preemption: {swap: 9 GB, link: 9 GB/s}}", "      answers: 2", "answers above 1 are not simulated with preemption swap"),
    ],
)  # fmt: skip
def test_what_the_engine_refuses_is_a_reason(scheduler: str, more: str, told: str) -> None:
    assert told in (only(planned(scheduler, more=more)).reason or "")


@pytest.mark.parametrize(
    ("grid", "told"),
    [
        ("engine: [{prefix_caching: true}]", "swap cannot be joined with a prefix cache"),
        ("disaggregated: [{link: 9 GB/s, ratio: ['1:1']}]", "prefill: preemption swap in pools is not simulated yet"),
        ("disaggregated: [{link: 9 GB/s, ratio: ['1:1'], decode: {policy: continuous}}]", "continuous never preempts"),
    ],
)  # fmt: skip
def test_swap_does_not_go_with_everything(grid: str, told: str) -> None:
    text = SPEC % {"schedulers": "{preemption: {swap: 9 GB, link: 9 GB/s}}", "more": "", "rate": 12}
    text = text.replace("  gpu: [h100-sxm]\n", f"  gpu: [h100-sxm]\n  {grid}\n")
    assert told in (only(decide.plan(spec.loads(text, "tenants.yaml"))).reason or "")


def test_ids_without_them_are_what_they_were() -> None:
    (with_swap,) = expand(planned("{preemption: {swap: 9 GB, link: 9 GB/s}}", more="").scenario)  # type: ignore[arg-type]
    (without,) = expand(planned("{preemption: recompute}", more="").scenario)  # type: ignore[arg-type]
    (plain,) = expand(planned("{}", more="").scenario)  # type: ignore[arg-type]
    assert with_swap.candidate_id != without.candidate_id == plain.candidate_id


@pytest.mark.parametrize(
    ("scheduler", "more", "told"),
    [
        ("{}", ADAPTERS, r"tenants\.yaml:11:17: workload\.classes\[0\]\.adapters: needs adapters resident"),
        (FEW, "", r"tenants\.yaml:14:49: candidates\.scheduler\[0\]\.max_adapters: holds adapters that no class uses \(got 4\)"),
        ("{max_adapters: 4}", ADAPTERS, r"needs adapter_load or adapter_link with max_adapters \(got neither\)"),
        ("{adapter_load: 9 ms}", ADAPTERS, "has adapter_load without max_adapters"),
        ("{max_adapters: 5000, adapter_load: 9 ms}", ADAPTERS, "must be at most 4,096"),
        (FEW, "      adapters: {rank: 16}", r"takes count or shares \(got neither\)"),
        (FEW, "      adapters: {shares: {a: 0.6, b: 0.6}, rank: 8}", "shares that sum to 1.2"),
        (FEW, "      adapters: {shares: {a: 0.6}, zipf: 1, rank: 8}", r"has shares and zipf \(got both\)"),
        (FEW, "      adapters: {count: 3, rank: 8, targets: [q_proj]}", r"11:47: workload\.classes\[0\]\.adapters\.targets\[0\]"),
        ("{policy: continuous, preemption: {swap: 9 GB, link: 9 GB/s}}", "", "to continuous, which never preempts"),
        ("{preemption: swap}", "", r"must be recompute or a mapping \(got 'swap'\)"),
        ("{}", "  clients: {retries: 3}", r"11:12: workload\.clients: send again what is refused or times out, and nothing is"),
        ("{max_queued_requests: 9}", "  clients: {retries: 40, growth: 9}", "a last pause of"),
    ],
)  # fmt: skip
def test_what_a_spec_cannot_say(scheduler: str, more: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        planned(scheduler, more=more)


@pytest.mark.parametrize(
    ("scheduler", "more"),
    [("{max_adapters: 4}", ADAPTERS), (FEW, "      adapters: {shares: {a: 0.6}, zipf: 1, rank: 8}")],
)
def test_a_faulty_entry_is_one_fault(scheduler: str, more: str) -> None:
    """What the entry is missed for elsewhere is not told beside it."""
    with pytest.raises(InputError) as caught:
        planned(scheduler, more=more)
    assert len(caught.value.lines) == 1

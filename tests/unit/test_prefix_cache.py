"""What a prefix cache finds: against the facts of traces, for sessions, and through its tiers."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from fleetplan.cli.simulate import command
from fleetplan.engine import EngineConfig, PrefixCache, Result, simulate
from fleetplan.errors import InputError
from fleetplan.physics.steptime import affine
from fleetplan.traffic.patterns import prefix_hit_share
from fleetplan.traffic.requests import Requests
from fleetplan.traffic.traces import read

STEP = affine(0.005, 2e-5, 5e-4)


def hits(run: Result) -> list[int]:
    assert run.prefix_hit_tokens is not None
    return run.prefix_hit_tokens.tolist()


def conversations(count: int, width: int, seed: int = 0) -> Requests:
    """Prompts of whole hashed blocks and a half one, each going on from an earlier prompt at some block; one at a time."""
    rng = np.random.default_rng(seed)
    known: list[list[int]] = [[]]
    fresh = 0
    for _ in range(count):
        before = known[rng.integers(max(len(known) - 12, 0), len(known))]
        before = before[: rng.integers(0, len(before) + 1)]
        new = int(rng.integers(1, 9))
        known.append([*before, *range(fresh, fresh + new)])
        fresh += new
    prompts = known[1:]
    return Requests.of(
        np.arange(count) * 10.0,
        [len(blocks) * width + width // 2 for blocks in prompts],
        1,
        block_offsets=np.cumsum([0, *(len(blocks) for blocks in prompts)]),
        block_hashes=np.concatenate(prompts),
        hash_block_tokens=width,
    )


@pytest.mark.parametrize("pool", [None, 400, 120, 60])
@pytest.mark.parametrize("plain", [True, False])
def test_hashed_blocks_hit_as_the_facts_of_a_trace_say(pool: int | None, plain: bool) -> None:
    """While a prompt runs its half block takes one more, so that a pool of b blocks is a cache of b − 1."""
    requests = conversations(300, 16)
    told = prefix_hit_share(requests.block_offsets, requests.block_hashes, None if pool is None else pool - 1)
    run = simulate(requests, STEP, EngineConfig(kv_blocks=pool, prefix_cache=PrefixCache()), plain=plain)
    assert (run.outcome == 1).all()
    assert told is not None
    assert sum(hits(run)) == round(told * len(requests.block_hashes)) * 16
    if pool == 60:  # a pool that forgets
        everything = prefix_hit_share(requests.block_offsets, requests.block_hashes)
        assert everything is not None
        assert told < 0.9 * everything


@pytest.mark.shared
def test_a_mooncake_trace_hits_what_its_hashes_say(shared: Path) -> None:
    trace = read(shared / "traces" / "mooncake" / "synthetic_trace.jsonl")
    assert trace.arrival_s is not None
    requests = Requests.of(
        trace.arrival_s, trace.prompt_tokens, trace.output_tokens, block_offsets=trace.block_offsets,
        block_hashes=trace.block_hashes, hash_block_tokens=trace.hash_block_tokens,
    )  # fmt: skip
    run = simulate(requests, affine(0.001, 1e-7, 1e-5), EngineConfig(prefix_cache=PrefixCache()))
    seen: set[int] = set()
    expected = []
    for i, prompt in enumerate(requests.prompt_tokens.tolist()):
        mine = requests.block_hashes[requests.block_offsets[i] : requests.block_offsets[i + 1]].tolist()
        count = next((k for k, block in enumerate(mine) if block not in seen), len(mine))
        whole = min(count * requests.hash_block_tokens, prompt)
        expected.append(min(whole, prompt - 1) // 16 * 16)
        seen.update(mine)
    assert hits(run) == expected
    share = run.summary()["prefix_hit_share"]
    told = prefix_hit_share(requests.block_offsets, requests.block_hashes)
    assert told is not None
    assert share == pytest.approx(told, abs=0.02)


@pytest.mark.parametrize("plain", [True, False])
def test_turns_find_the_turn_before_and_fork_where_their_history_ends(plain: bool) -> None:
    """Turn 1 stores 100 + 29 tokens, 8 whole blocks; turn 3 shares 50 tokens, 3 whole blocks, of turn 2."""
    requests = Requests.of(
        [0.0, 5.0, 10.0, 15.0], [100, 150, 80, 400], [30, 20, 5, 1], session_id=1, history_tokens=[-1, -1, 50, -1]
    )  # fmt: skip
    run = simulate(requests, STEP, EngineConfig(prefix_cache=PrefixCache()), plain=plain)
    assert hits(run) == [0, 8 * 16, 3 * 16, (80 + 5 - 1) // 16 * 16]


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize(("prompt", "hit"), [(64, 48), (65, 64), (63, 48), (16, 0)])
def test_the_last_token_is_always_computed(plain: bool, prompt: int, hit: int) -> None:
    requests = Requests.of([0.0, 5.0], prompt, 1, prefix_id=0, prefix_tokens=prompt)
    run = simulate(requests, STEP, EngineConfig(prefix_cache=PrefixCache()), plain=plain)
    assert hits(run) == [0, hit]
    assert run.ttft_s[1] == pytest.approx(0.005 + (prompt - hit) * 2e-5)


@pytest.mark.parametrize("plain", [True, False])
def test_shared_blocks_are_held_once(plain: bool) -> None:
    """8 requests of 160 common and 16 own tokens fit in 10 + 8 · 2 blocks at once, and share one prefill of what is common."""
    requests = Requests.of(np.zeros(8), 176, 2, prefix_id=0, prefix_tokens=160)
    config = EngineConfig(kv_blocks=10 + 8 * 2, prefix_cache=PrefixCache())
    run = simulate(requests, STEP, config, plain=plain)
    assert run.steps == 2
    assert hits(run) == [0] + [160] * 7
    assert run.first_token_s[0] == pytest.approx(0.005 + (176 + 7 * 16) * 2e-5)


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize(
    ("cache", "hit", "extra_s"),
    [
        (PrefixCache(), 0, 0.0),
        (PrefixCache(host_blocks=20, host_block_s=1e-3), 10, 10e-3),
        # of the 11 blocks of A that B pushes out, the host keeps the first 4 that come last, the disk the rest
        (PrefixCache(4, 1e-3, 100, 5e-3), 10, None),
    ],
)
def test_what_was_evicted_comes_back_from_its_tier(
    plain: bool, cache: PrefixCache, hit: int, extra_s: float | None
) -> None:
    requests = Requests.of([0.0, 5.0, 10.0], 170, 1, prefix_id=[0, 1, 0], prefix_tokens=160)
    run = simulate(requests, STEP, EngineConfig(kv_blocks=11, prefix_cache=cache), plain=plain)
    assert hits(run) == [0, 0, hit * 16]
    waited = run.ttft_s[2] - (0.005 + (170 - hit * 16) * 2e-5)
    assert waited == pytest.approx(4 * 1e-3 + 6 * 5e-3 if extra_s is None else extra_s)


def test_a_cache_never_lets_saturated_traffic_wait_longer_for_its_end() -> None:
    rng = np.random.default_rng(2)
    requests = Requests.of(
        np.cumsum(rng.exponential(0.02, 400)), rng.integers(600, 1200, 400), rng.integers(10, 60, 400),
        prefix_id=rng.integers(0, 3, 400), prefix_tokens=512,
    )  # fmt: skip
    without = simulate(requests, STEP, EngineConfig(kv_blocks=2000))
    cached = simulate(requests, STEP, EngineConfig(kv_blocks=2000, prefix_cache=PrefixCache()))
    assert cached.summary()["prefix_hit_share"] > 0.5
    assert np.mean(cached.ttft_s) < np.mean(without.ttft_s)


def test_the_command_line_says_what_was_found(tmp_path: Path) -> None:
    (tmp_path / "cost.json").write_text(
        json.dumps(
            {
                "model": "affine",
                "t_fixed_s": 0.005,
                "prefill_s_per_token": 2e-5,
                "decode_s_per_sequence": 5e-4,
            }
        )
    )
    (tmp_path / "requests.csv").write_text(
        "arrival_s,prompt_tokens,output_tokens,prefix_id,prefix_tokens,session_id,history_tokens,answers,adapter_id\n"
        "0,100,3,7,64,,,2,1\n1,100,3,7,64,3,,,\n2,300,3,,,3,,1,1\n"
    )
    given = [
        "--requests",
        str(tmp_path / "requests.csv"),
        "--steptime",
        str(tmp_path / "cost.json"),
        "--json",
    ]
    options = [
        "--max-adapters",
        "1",
        "--adapter-load-s",
        "0.25",
        "--prefix-cache",
        "--out",
        str(tmp_path / "out.csv"),
    ]
    answer = CliRunner().invoke(command, [*given, *options], catch_exceptions=False)
    assert answer.exit_code == 0
    figures = json.loads(answer.output)
    assert figures["output_tokens"] == 12
    assert figures["prefix_hit_tokens"] == 64 + 96
    assert figures["prefix_hit_share"] == pytest.approx(160 / 500)
    rows = (tmp_path / "out.csv").read_text().splitlines()
    assert rows[0].endswith(",prefix_hit_tokens")
    assert [row.rsplit(",", 1)[1] for row in rows[1:]] == ["0", "64", "96"]
    with pytest.raises(InputError, match="no --prefix-cache"):
        CliRunner().invoke(
            command, [*given, "--host-blocks", "5", "--max-adapters", "1"], catch_exceptions=False
        )
    with pytest.raises(InputError, match="max_adapters"):
        CliRunner().invoke(command, given, catch_exceptions=False)

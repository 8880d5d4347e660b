"""Whatever is done to a valid spec, it is a scenario or an InputError with a line and column for each fault."""

import copy
import re
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from fleetplan.errors import InputError
from fleetplan.spec import loads

PROJECT = Path(__file__).resolve().parents[2]
RICH = """
scenario: rich
model: llama-3.3-70b
workload:
  classes:
    - name: chat
      arrivals: {process: profile, inside: {process: gamma, rate: 12 req/s, cv: 3}, factors: [0.5, 1.5]}
      prompt_tokens: {lognormal: {mean: 1200, p99: 6000}}
      output_tokens: {geometric: {mean: 250, max: 2048}}
      shared_prefix: {tokens: 800, share: 0.9}
      sessions: {turns: 3, gap: 10 s}
      adapters: {count: 20, zipf: 1.1, rank: 16}
      timeout: 30 s
      slo: {ttft: {p99: 1 s}, tpot: {p95: 40 ms}, attainment: {share: 0.9, e2e: 9 s}}
    - name: batch
      arrivals: {process: mmpp, states: [{rate: 1 req/s, mean_stay: 5 s}, {rate: 9 req/s, mean_stay: 1 s}]}
      empirical: azure-2023-conv
      adapters: {shares: {acme: 0.5, beta: 0.2}, rank: 8, targets: [q, v]}
  clients: {retries: 3, backoff: 500 ms}
candidates:
  gpu: [h100-sxm]
  tensor_parallel: [4, 8]
  scheduler:
    - {policy: chunked, max_num_seqs: 256, max_adapters: 8, adapter_load: 20 ms, preemption: {swap: 64 GB, link: 25 GB/s}}
    - {max_adapters: 16, adapter_link: 25 GB/s, priority: weighted, priority_weights: [4, 1], max_wait: 30 s}
  speculation: [none, {draft: eagle3, tokens: 3, acceptance: [0.75, 0.70, 0.66]}]
  engine: [vllm, {name: sglang, block_size: 32}]
step_time: {roofline: {efficiency: 0.7}}
policy: {prices: on-demand-2026-08, max_utilisation: 0.8}
simulation: {horizon: 10 min}
"""
TEXTS = [RICH, (PROJECT / "data/scenarios/azure-conversation.yaml").read_text(encoding="utf-8")]
PLAIN = YAML(typ="safe", pure=True)

junk = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-5, 10**20), st.floats(), st.text(max_size=12),
        st.sampled_from(["1 s", "5 GB", "-3 req/s", "none", "calibrated", "h100-sxm", "p99", "<chat>", "[key]"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["process", "p99", "rate", "lognormal", "classes", "trace", "<x>", "", "self"]), inner, max_size=3),
    ),
    max_leaves=6,
)  # fmt: skip


def spots(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner: Any = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    return [found for key, part in inner for found in [(*path, key), *spots(part, (*path, key))]]


@given(st.data())
@settings(max_examples=150)
def test_mutations(data: st.DataObject) -> None:
    tree = copy.deepcopy(PLAIN.load(data.draw(st.sampled_from(TEXTS))))
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(spots(tree) or [()]))
        if not path:
            break
        parent = tree
        for key in path[:-1]:
            parent = parent[key]
        action = data.draw(st.sampled_from(["drop", "junk", "rename", "wrap", "swap"]))
        if action == "drop":
            del parent[path[-1]]
        elif action == "junk":
            parent[path[-1]] = data.draw(junk)
        elif action == "wrap":
            parent[path[-1]] = [parent[path[-1]]]
        elif action == "swap":
            parent[path[-1]] = {"p99": parent[path[-1]]}
        elif isinstance(parent, dict):
            parent[data.draw(st.text(max_size=8))] = parent.pop(path[-1])
    check(written(tree))


@given(st.sampled_from(TEXTS), st.integers(0, 2000), st.text(max_size=4), st.integers(0, 6))
@settings(max_examples=100)
def test_slips_of_the_keyboard(text: str, at: int, typed: str, lost: int) -> None:
    at %= len(text)
    check((text[:at] + typed + text[at + lost :]).encode("utf-8", "surrogatepass"))


@given(st.binary(max_size=60))
@settings(max_examples=60)
def test_noise(data: bytes) -> None:
    check(data)


def check(text: bytes) -> None:
    lines: tuple[str, ...] = ()
    try:
        loads(text, "f.yaml").meaning()
    except InputError as error:
        lines = error.lines or ("no line",)
    for line in lines:
        assert re.match(r"f\.yaml:[1-9]\d*:[1-9]\d*: \S", line), line
        assert "\n" not in line
    assert len(set(lines)) == len(lines)


def written(tree: Any) -> bytes:
    import json

    return (
        json.dumps(tree)
        .replace("NaN", ".nan")
        .replace("-Infinity", "-.inf")
        .replace("Infinity", ".inf")
        .encode()
    )

"""The goodput case: Llama-2-7B on one H100, prompt 512, output 256, TTFT 500 ms, TPOT 30 ms."""

from itertools import pairwise

import numpy as np
import pytest

from fleetplan.engine import EngineConfig, simulate
from fleetplan.physics.steptime import linear
from fleetplan.queueing.goodput import (
    best_cap,
    caps_to,
    cliff,
    goodput_curve,
    goodput_textbook,
    pareto,
    saturated_curve,
)
from fleetplan.traffic.requests import Requests

F, BW, P, K = 989e12 * 0.7, 3.35e12 * 0.7, 6738415616, 524288
STEP = linear(0.0, 2 * P / F, 2 * P / BW, 0.0, K / BW, 0.0)
MEMORY_CAP = 179


def decode_s(batch: int) -> float:
    return float(STEP.step_s(batch, batch, batch, batch * 640, 0))


def test_textbook_cliff_is_just_past_169():
    points = goodput_textbook(decode_s, range(1, MEMORY_CAP + 1), 256, 0.030)
    assert cliff(points) == 169
    best = best_cap(points)
    assert best.batch_cap == 169
    assert best.tpot_s == pytest.approx(0.029929, abs=5e-7)
    assert best.output_tokens_per_s == pytest.approx(5646.67, abs=0.005)
    assert points[169].goodput_per_s == 0


def test_prompts_in_the_way_bring_the_cliff_forward():
    points = saturated_curve(512, 256, STEP, EngineConfig("chunked"), [16, 64, 128, 169])
    tpot = {p.batch_cap: p.tpot_s for p in points}
    assert all(tpot[b] > decode_s(b) for b in tpot)
    assert tpot[169] > 0.030
    assert tpot[64] < 0.030


def test_curve_by_simulation():
    rng = np.random.default_rng(5)
    rate = 12.0
    requests = Requests.of(np.cumsum(rng.exponential(1 / rate, 3000)), 512, 256)
    caps = [c for c in caps_to(MEMORY_CAP, 8) if c >= 4]
    blocks = MEMORY_CAP * 48
    points = goodput_curve(
        requests,
        lambda cap: simulate(requests, STEP, EngineConfig("chunked", cap, kv_blocks=blocks)),
        caps,
        ttft_at_most_s=0.5,
        tpot_at_most_s=0.03,
    )
    small, large = points[0], points[-1]
    assert small.attainment < 0.05
    assert not small.stable
    assert large.attainment > 0.95
    assert best_cap(points).goodput_per_s == pytest.approx(rate, rel=0.08)
    rows = [
        {"cap": p.batch_cap, "rate": p.output_tokens_per_s, "user": p.output_tokens_per_s_per_user}
        for p in points
    ]
    front = pareto(rows, "rate", "user")
    assert 1 <= len(front) <= len(rows)
    assert all(a["rate"] >= b["rate"] and a["user"] <= b["user"] for a, b in pairwise(front))

"""Two measured vLLM runs, replayed by their own arrivals, lengths and limits with five fitted constants."""

import json
from pathlib import Path

import numpy as np
import pytest

from fleetplan.engine import EngineConfig, simulate
from fleetplan.physics.steptime import linear
from fleetplan.traffic.requests import Requests

WEIGHTS_BYTES, KV_BYTES = 16.06e9, 131072
# overhead [s], efficiency of FLOP/s, of bandwidth on weights, on KV, σ [s]; peak FLOP/s, bytes/s; KV blocks. vLLM keeps one of
# its 2588 blocks empty. In an overloaded run only sums of the terms are seen: the RTX 4090's constants fit together, and are not
# physical one by one (a share of the bandwidth above 1).
RUNS = {
    "RTXPRO6000": (1.28e-3, 0.615, 0.831, 0.708, 1.98e-5, 500e12, 1.79e12, None),
    "RTX4090": (1.713e-3, 1.026, 1.276, 0.546, 1.64e-5, 165e12, 1.008e12, 2587),
}


@pytest.mark.shared
@pytest.mark.parametrize("gpu", RUNS)
def test_replay_follows_every_request(gpu: str, shared: Path) -> None:
    folder = shared / "traces" / "vllm-requests" / gpu / "Llama-3.1-8B"
    rows = [json.loads(line) for line in (folder / "requests.jsonl").read_text().splitlines()]
    settings = json.loads((folder / "meta.json").read_text())["engine_kwargs"]
    rows.sort(key=lambda row: row["queued_ts"])
    queued, first, last = (
        np.array([row[key] for row in rows]) - rows[0]["queued_ts"]
        for key in ("queued_ts", "first_token_ts", "last_token_ts")
    )
    requests = Requests.of(queued, [row["input_toks"] for row in rows], [row["output_toks"] for row in rows])
    overhead, flops, weights, kv, sequence, peak, bandwidth, blocks = RUNS[gpu]
    run = simulate(
        requests,
        linear(
            overhead,
            WEIGHTS_BYTES / flops / peak,
            WEIGHTS_BYTES / weights / bandwidth,
            0.0,
            KV_BYTES / kv / bandwidth,
            sequence,
        ),
        EngineConfig(
            "chunked",
            max_num_seqs=settings["max_num_seqs"],
            max_num_batched_tokens=settings["max_num_batched_tokens"],
            kv_blocks=blocks,
        ),
    )

    def error(simulated: np.ndarray, measured: np.ndarray) -> float:
        return float(np.median(np.abs(simulated / measured - 1)))

    gaps = requests.output_tokens - 1
    several = gaps > 0
    assert error(run.e2e_s, last - queued) <= 0.02
    assert error(run.ttft_s, first - queued) <= 0.03
    assert error(run.tpot_s[several], ((last - first)[several] / gaps[several])) <= 0.03
    assert run.makespan_s == pytest.approx(last.max(), rel=0.012)
    assert (run.preemptions.sum() > 200) == (gpu == "RTX4090")

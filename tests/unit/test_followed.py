"""An engine's own time series beside the simulation of its log: laid over each other, drawn, and told apart where it is wrong."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest

from fleetplan.calibration.follow import TITLES, follow
from fleetplan.calibration.readers import RequestLog
from fleetplan.engine import EngineConfig, simulate
from fleetplan.errors import InputError
from fleetplan.physics.form import linear
from fleetplan.report.followed import write_followed
from fleetplan.traffic.requests import Requests

STEP = linear(0.002, 3e-5, 0.0048, 0.0, 4e-8, 2e-5)


def made(folder: Path, late_s: float = 2.0) -> tuple[RequestLog, Path]:
    """A log and a time series of the simulation itself, the latter on a clock of its own."""
    rng = np.random.default_rng(2)
    requests = Requests.of(np.cumsum(rng.exponential(0.035, 300)), 400, 80)
    config = EngineConfig("chunked", max_num_seqs=16, max_num_batched_tokens=2048, kv_blocks=600)
    run = simulate(requests, STEP, config, resolution_s=0.5)
    assert run.series is not None
    zero = requests.arrival_s[0]
    settings = {"max_num_seqs": 16, "max_num_batched_tokens": 2048, "kv_tokens": 9600}
    log = RequestLog(
        "log", "", run.arrival_s - zero, run.first_scheduled_s - zero, run.first_token_s - zero, run.finish_s - zero,
        requests.prompt_tokens, requests.output_tokens, settings,
    )  # fmt: skip
    path = folder / "timeseries.csv"
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["t", "running", "waiting", "kv_cache_pct"])
        for t, running, waiting, blocks in zip(
            run.series.time_s, run.series.running, run.series.waiting, run.series.kv_blocks, strict=True
        ):
            out.writerow([t - zero + late_s, running, waiting, blocks / 6])
    return log, path


@pytest.mark.parametrize("late_s", [0.0, 2.0, -3.0])
def test_the_clock_is_found_and_the_lines_lie_over_each_other(tmp_path: Path, late_s: float) -> None:
    log, path = made(tmp_path, late_s)
    found = follow(log, STEP, path)
    assert found.shift_s == pytest.approx(-late_s, abs=0.25)
    assert set(found.measured) == {"running", "waiting", "kv"}
    assert max(found.measured["waiting"]) > 20
    for name in found.measured:
        assert found.apart(name) < 0.08, name
    slow = follow(log, linear(0.004, 3e-5, 0.0096, 0.0, 4e-8, 2e-5), path)
    assert slow.apart("waiting") > 0.2


def test_the_page_holds_both_lines(tmp_path: Path) -> None:
    log, path = made(tmp_path)
    found = follow(log, STEP, path)
    panels = {
        TITLES[name]: (found.measured[name].tolist(), found.simulated[name].tolist(), found.apart(name))
        for name in found.measured
    }
    write_followed("A <run>", "note", found.time_s.tolist(), panels, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "A &lt;run&gt;" in page
    assert "http" not in page
    lines = re.findall(r'<polyline class="(\w+)" points="([^"]*)"', page)
    assert [kind for kind, _ in lines] == ["measured", "simulated"] * 3
    assert all(len(points.split()) == len(found.time_s) for _, points in lines)


@pytest.mark.parametrize(
    ("text", "says"),
    [("t,running\n1,2\n", "lacks waiting, kv_cache_pct"), ("", "no row"), ("t,running,waiting,kv_cache_pct\n1,2,x,4\n", "no number"),
     ("t,running,waiting,kv_cache_pct\n1,2,3,4\n", "at least two rows")],
)  # fmt: skip
def test_a_series_that_cannot_be_is_refused(tmp_path: Path, text: str, says: str) -> None:
    log, path = made(tmp_path)
    path.write_text(text)
    with pytest.raises(InputError, match=says):
        follow(log, STEP, path)
    path.unlink()
    with pytest.raises(InputError, match="no such file"):
        follow(log, STEP, path)


@pytest.mark.shared
@pytest.mark.parametrize(("gpu", "apart"), [("RTX4090", 0.06), ("RTXPRO6000", 0.06)])
def test_vllm_is_followed_through_time(shared: Path, gpu: str, apart: float) -> None:
    """Constants of tests/golden/test_engine_vllm.py: running, waiting and KV in use stay near vLLM's own."""
    from fleetplan.calibration.readers import read

    step = {
        "RTX4090": linear(1.713e-3, 16.06e9 / 1.026 / 165e12, 16.06e9 / 1.276 / 1.008e12, 0.0, 131072 / 0.546 / 1.008e12, 1.64e-5),
        "RTXPRO6000": linear(1.28e-3, 16.06e9 / 0.615 / 500e12, 16.06e9 / 0.831 / 1.79e12, 0.0, 131072 / 0.708 / 1.79e12, 1.98e-5),
    }[gpu]  # fmt: skip
    folder = shared / "traces/vllm-requests" / gpu / "Llama-3.1-8B"
    log = read(folder)
    assert isinstance(log, RequestLog)
    found = follow(log, step, folder / "timeseries.csv")
    assert {name: found.apart(name) for name in found.measured if found.apart(name) > apart} == {}

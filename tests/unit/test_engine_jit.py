"""Kernels kept on disk go when any source of theirs changes, and take arrays as they come."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from fleetplan.engine import EngineConfig, simulate
from fleetplan.engine.jit import forget_stale_kernels
from fleetplan.physics.form import affine
from fleetplan.traffic.requests import Requests


def test_a_changed_source_forgets_every_kernel(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one")
    forget_stale_kernels(tmp_path)
    kernel = tmp_path / "__pycache__" / "a.f-1.nbi"
    kernel.write_text("compiled")
    assert not forget_stale_kernels(tmp_path)
    assert kernel.exists()
    (tmp_path / "b.py").write_text("two")
    assert forget_stale_kernels(tmp_path)
    assert not kernel.exists()


def test_step_times_may_be_every_other_entry_of_an_array() -> None:
    """The kernel takes arrays by their addresses: those of the caller may lie in any way."""
    step = affine(0.005, 2e-5, 5e-4)
    wide = {name: np.repeat(getattr(step, name), 2)[::2] for name in ("overhead_s", "compute_s", "memory_s")}
    requests = Requests.of([0.0, 0.01], [300, 200], 5)
    plain = simulate(requests, step, EngineConfig())
    assert (
        simulate(requests, replace(step, **wide), EngineConfig()).finish_s.tolist() == plain.finish_s.tolist()
    )

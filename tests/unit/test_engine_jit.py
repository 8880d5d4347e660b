"""Kernels kept on disk go when any source of theirs changes."""

from pathlib import Path

from fleetplan.engine.jit import forget_stale_kernels


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

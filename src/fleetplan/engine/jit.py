"""How the kernels are compiled: kept on disk, without the interpreter lock, and without counting references to arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from numba import njit

# The state's arrays live in Python for the whole run, so that counting references at every call would only cost time.
_OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy", "_nrt": False}
compiled: Callable[..., Any] = njit(**_OPTIONS)
inlined: Callable[..., Any] = njit(forceinline=True, **_OPTIONS)
"""For what runs at every event: the state is some hundred machine words, which a call would copy."""


def forget_stale_kernels(folder: Path) -> bool:
    """Delete kernels on disk that were compiled from other sources than those in `folder`; whether any source had changed.

    numba looks only at the file of the function that it loads, not at those of the functions that it calls.
    """
    digest = hashlib.sha256()
    for source in sorted(folder.glob("*.py")):
        digest.update(source.read_bytes())
    kept = folder / "__pycache__" / "kernels.sha256"
    with suppress(OSError):  # a folder that cannot be written has no kernels of ours
        if kept.exists() and kept.read_text() == digest.hexdigest():
            return False
        kept.parent.mkdir(exist_ok=True)
        for kernel in kept.parent.glob("*.nb[ci]"):
            kernel.unlink(missing_ok=True)
        kept.write_text(digest.hexdigest())
    return True


forget_stale_kernels(Path(__file__).parent)

"""How the kernels are compiled: kept on disk, without the interpreter lock, and without counting references to arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit

# The state's arrays live in Python for the whole run, so that counting references at every call would only cost time.
_OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy", "_nrt": False}
compiled: Callable[..., Any] = njit(**_OPTIONS)
inlined: Callable[..., Any] = njit(forceinline=True, **_OPTIONS)
"""For what runs at every event: the state is some hundred machine words, which a call would copy."""

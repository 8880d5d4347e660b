"""How the kernels are compiled: kept on disk, without the interpreter lock, and without counting references to arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from numba import njit
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler


class _Nowhere:
    """Where a part's environment would be set: Python never runs it."""

    def set_env(self, name: str, environment: Any) -> None:
        pass


class _Part(JITCodeLibrary):
    """The code of a function that only our own call. numba would optimise it, and all that it calls, anew at each level of calls;
    here it is linked into who calls it as it is, and all of it is optimised once, with the function that Python enters by."""

    codegen = _Nowhere()

    def finalize(self) -> None:
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        self._ensure_finalized()
        return 0


class _PartCompiler(Compiler):
    def __init__(self, typing_context: Any, target: Any, library: Any, *others: Any) -> None:
        super().__init__(typing_context, target, library or _Part(target.codegen(), "part"), *others)


# The state's arrays live in Python for the whole run, so that counting references at every call would only cost time.
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False}
_PART: dict[str, Any] = {
    **_OPTIONS,
    "pipeline_class": _PartCompiler,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}
entered: Callable[..., Any] = njit(cache=True, **_OPTIONS)
"""What Python calls: compiled with all that it calls, and kept on disk."""
compiled: Callable[..., Any] = njit(**_PART)
"""What only compiled functions call; the compiler inlines what is small."""
inlined: Callable[..., Any] = njit(forceinline=True, **_PART)
"""For what runs at every event."""


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

"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A temporary name beside `path`, which takes its place when the block ends well and is gone when it does not.

    What a killed process left under its temporary name is cleared away.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _clear(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield temporary
        with temporary.open("rb") as handle:
            os.fsync(handle.fileno())
        os.replace(temporary, path)
    finally:
        for left in (temporary, temporary.with_name(temporary.name + ".wal")):
            left.unlink(missing_ok=True)


def _clear(path: Path) -> None:
    prefix = f".{path.name}."
    for name in os.listdir(path.parent):
        if not name.startswith(prefix):
            continue
        pid = name.removeprefix(prefix).removesuffix(".wal")
        if pid.isdigit() and int(pid) != os.getpid() and not _alive(int(pid)):
            (path.parent / name).unlink(missing_ok=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True

"""One run of the workflow at a time in a folder, and what a killed run leaves behind cleared, once it is wholly dead."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import uuid
from pathlib import Path
from typing import Any

from fleetplan.errors import InputError

MARK = "FLEETPLAN_RUN"  # every process that a run starts inherits this variable: so its children can be told apart

_held: list[
    Any
] = []  # open for as long as the process lives: the system lets go of the lock when it ends, however it ends


def take(folder: Path) -> None:
    """Take the run lock of a Snakemake folder (`.snakemake`) for this process, until it ends.

    Snakemake's own locks that a dead run left are deleted. Raises InputError, with the id of the process, when another
    run is at work, or one was killed and something that it started still is.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "run.lock"
    handle = path.open("a+", encoding="utf-8")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        owner = _record(handle)
        handle.close()
        raise InputError(
            f"{path}: another run is at work here (process {owner.get('pid', 'unknown')} on {owner.get('host', 'this machine')}); "
            "wait for it, or stop it"
        ) from None
    owner = _record(handle)
    left = [path for path in (folder / "locks").glob("*") if path.is_file()]
    if left and owner:
        if owner["host"] != socket.gethostname():
            raise InputError(
                f"{folder / 'locks'}: locked by process {owner['pid']} on host {owner['host']}, which cannot be looked at from "
                f"here; if it is dead, delete {path}"
            )
        if alive := _children(owner["run"]):
            raise InputError(
                *(
                    f"{folder / 'locks'}: the run of process {owner['pid']} is dead, but process {pid} that it started is "
                    f"still at work ({command}); wait for it, or stop it"
                    for pid, command in alive
                )
            )
        for lock in left:
            lock.unlink(missing_ok=True)
    run = uuid.uuid4().hex
    handle.seek(0)
    handle.truncate()
    handle.write(json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "run": run}))
    handle.flush()
    os.environ[MARK] = run
    _held.append(handle)


def _record(handle: Any) -> dict[str, Any]:
    handle.seek(0)
    try:
        found = json.loads(handle.read() or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) and {"pid", "host", "run"} <= found.keys() else {}


def _children(run: str) -> list[tuple[int, str]]:
    """The living processes that a run started, by id, with their command."""
    import psutil  # type: ignore[import-untyped]

    found = []
    for process in psutil.process_iter():
        try:
            if (
                process.pid != os.getpid()
                and process.environ().get(MARK) == run
                and process.status() != psutil.STATUS_ZOMBIE
            ):
                found.append((process.pid, " ".join(process.cmdline())[:120]))
        except psutil.Error:
            continue
    return found

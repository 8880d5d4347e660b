"""`fleetplan batching`: simulations of every candidate that can run, by load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fleetplan.cli.stage import Rows, stage_command


def _rows(subject: Any, parts: Path) -> Rows:
    from fleetplan.sizing.stages import batching

    return batching.rows(subject)


command = stage_command("batching", _rows)

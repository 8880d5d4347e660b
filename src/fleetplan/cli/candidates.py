"""`fleetplan candidates`: a scenario's grid, what fits, and why the rest cannot run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fleetplan.cli.stage import Rows, stage_command


def _rows(subject: Any, parts: Path) -> Rows:
    from fleetplan.sizing.stages import candidates

    return candidates.rows(subject)


command = stage_command("candidates", _rows)

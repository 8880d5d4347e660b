"""`fleetplan roofline`: bounds and decode steps of every candidate that can run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fleetplan.cli.stage import Rows, stage_command


def _rows(subject: Any, parts: Path) -> Rows:
    from fleetplan.sizing.stages import roofline

    return roofline.rows(subject)


command = stage_command("roofline", _rows)

"""`fleetplan speculation`: where speculative decoding pays for every candidate that can run, and where it stops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fleetplan.cli.stage import Rows, stage_command


def _rows(scenario: Any, parts: Path) -> Rows:
    from fleetplan.sizing.stages import speculation

    return speculation.rows(scenario)


command = stage_command("speculation", _rows, planned=False)

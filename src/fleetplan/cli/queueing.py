"""`fleetplan queueing`: the closed forms of every candidate that can run, beside the simulations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fleetplan.cli.stage import Rows, stage_command


def _rows(subject: Any, parts: Path) -> Rows:
    from fleetplan.sizing.stages import queueing
    from fleetplan.store.parts import read_part

    decision = read_part(parts, subject.scenario.scenario, "decisions")[0]
    return queueing.rows(subject, decision["candidate_id"], decision["replicas"])


command = stage_command("queueing", _rows)

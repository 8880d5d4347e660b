"""`fleetplan sizing`: the decision with its evidence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fleetplan.cli.stage import Rows, stage_command
from fleetplan.errors import InputError


def _rows(subject: Any, parts: Path) -> Rows:
    from fleetplan.sizing.stages import sizing
    from fleetplan.store.parts import read_part

    name = subject.scenario.scenario
    known = {
        row["candidate_id"]: row["sustainable_requests_per_s"] for row in read_part(parts, name, "saturation")
    }

    def saturation(candidate_id: str) -> float:
        if candidate_id not in known:
            raise InputError(
                f"{parts}: the part saturation of {name} is of another grid (lacks candidate {candidate_id}); "
                "run `fleetplan batching` on the spec again"
            )
        return float(known[candidate_id])

    return sizing.rows(subject, saturation)


def _told(tables: Rows) -> str:
    decision = tables["decisions"][0]
    if decision["verdict"] != "feasible":
        return f"infeasible: {decision['reason']}\n{decision['nearest_change']}"
    spare = f" + {decision['spare_replicas']} spare" if decision["spare_replicas"] else ""
    fleet = (
        f"{decision['gpu']} = ({decision['replicas']} replicas{spare}) × {decision['gpus_per_replica']} GPUs"
    )
    if decision["prefill_replicas"] is not None:
        fleet = f"GPUs = {decision['prefill_replicas']} prefill + {decision['decode_replicas']} decode replicas{spare}"
    return (
        f"{decision['gpus']} × {fleet}, {decision['cost_usd_per_hour']:.2f} USD/h; "
        f"binds: {decision['binding_limit']}"
    )


command = stage_command("sizing", _rows, _told)

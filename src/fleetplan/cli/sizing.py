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
        return f"infeasible: {decision['reason']}\nnearest change: {decision['nearest_change']}"
    spare = f" + {decision['spare_replicas']} spare" if decision["spare_replicas"] else ""
    fleet = f"{decision['gpu']} = ({_many(decision['replicas'], 'replica')}{spare}) × {_many(decision['gpus_per_replica'], 'GPU')}"
    if decision["prefill_replicas"] is not None:
        fleet = f"GPUs = {decision['prefill_replicas']} prefill + {decision['decode_replicas']} decode replicas{spare}"
    return (
        f"{decision['gpus']} × {fleet}, {decision['cost_usd_per_hour']:.2f} USD/h; "
        f"binds: {decision['binding_limit']}\n{_firm(decision)}"
    )


def _firm(decision: dict[str, Any]) -> str:
    """How sure it is: of sampling noise, and of what is not known."""
    noise = "beyond sampling noise" if decision["decided"] else "NOT beyond sampling noise"
    said = f"{noise}: {decision['certificate']}"
    chance, surer = decision["probability_holds"], decision["replicas_for_95_percent"]
    if chance is None:
        return said
    said += f"\nkeeps every promise with {chance:.0%} over what is not known"
    return (
        said
        if surer is None or surer <= decision["replicas"]
        else f"{said}; {_many(surer, 'replica')} for 95%"
    )


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


command = stage_command("sizing", _rows, _told)

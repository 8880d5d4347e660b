"""What each term of the step time buys: the held-out error without it, everything else fitted anew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fleetplan.calibration import accuracy
from fleetplan.calibration.basis import Basis, basis
from fleetplan.calibration.points import Point
from fleetplan.calibration.public import held_out_folds
from fleetplan.physics.constants import LEVELS
from fleetplan.physics.terms import SWITCHES, TERMS

_MODEL_TERMS = ("matmul", "experts", "head", "kv_read", "attention", "sends")
"""Without these a step is no step; the others are refinements. No public point has a pipeline, so its sends say nothing here."""


def ablation(points: Sequence[Point]) -> Iterator[dict[str, object]]:
    """Rows of what is taken away, how points were left out (single points, whole groups), and the errors then; one at a time, as they come."""
    folds = {way: fold for way, fold in held_out_folds(points).items() if way in ("deployment", "pair")}

    def rows(
        name: str, made: Basis, levels: Sequence[str] = LEVELS, robust: bool = True
    ) -> Iterator[dict[str, object]]:
        for way, fold in folds.items():
            table = accuracy.error_table(points, accuracy.cross_validate(made, points, fold, levels, robust))
            yield {
                "without": name,
                "left_out": way,
                **{f"tpot_error_{key}": table["tpot"][key] for key in ("median", "mean", "p90")},
                "ttft_error_median": table["ttft"]["median"],
                "output_tokens_per_s_error_median": table["output_tokens_per_s"]["median"],
            }

    whole = basis(points)
    yield from rows("nothing", whole)
    for term in (*TERMS, *SWITCHES, "client"):
        if term not in _MODEL_TERMS:
            yield from rows(term, basis(points, without=frozenset({term})))
    yield from rows("recipes", basis(points, recipes=False))
    for index in range(len(LEVELS) - 1, -1, -1):
        yield from rows(
            f"constants below {LEVELS[index - 1] if index else 'base'}", whole, levels=LEVELS[:index]
        )
    yield from rows("robust loss", whole, robust=False)

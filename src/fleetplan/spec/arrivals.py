"""When requests arrive, as a user writes it: one process, a profile over day or week around one, or a closed loop."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from fleetplan.spec.base import (
    FactorOrZero,
    Many,
    Model,
    NotEmpty,
    Number,
    PositiveCv,
    RequestRate,
    Seconds,
    SecondsOrZero,
    Share,
    fault,
    forms,
)
from fleetplan.spec.units import Quantity, shown


class Constant(Model):
    """One arrival every 1/rate."""

    process: Literal["constant"]
    """`constant`."""
    rate_per_s: RequestRate
    """Arrivals per second."""


class Poisson(Model):
    """Memoryless arrivals, CV 1."""

    process: Literal["poisson"]
    """`poisson`."""
    rate_per_s: RequestRate
    """Mean arrivals per second."""


class _GapsByCv(Model):
    rate_per_s: RequestRate
    """Mean arrivals per second."""
    cv: PositiveCv | None = None
    """Coefficient of variation of the gaps; above 1 is burstier than Poisson."""


def _shape(value: Any) -> Any:
    if value == math.inf:
        raise fault("must be a finite number (got .inf): gaps without variation are process: constant")
    return value


Shape = Annotated[Number, Field(ge=1e-4, le=1e6)]


class GammaGaps(_GapsByCv):
    """Independent gamma gaps: give `cv`, or `burstiness` as engines' benchmarks define it (the shape, 1/CV²)."""

    process: Literal["gamma"]
    """`gamma`."""
    burstiness: Annotated[Shape | None, BeforeValidator(_shape)] = None
    """Gamma shape 1/CV²: lower is burstier, 0.25 is CV 2."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.cv is None) == (self.burstiness is None):
            got = "both" if self.cv is not None else "neither"
            raise fault(f"takes cv or burstiness (got {got}), give one; burstiness is 1/cv², so 0.25 is cv 2")
        return self

    @property
    def gap_cv(self) -> float:
        """CV of the gaps, however it was written."""
        return self.cv if self.cv is not None else float(self.burstiness or 1.0) ** -0.5


class Weibull(_GapsByCv):
    """Independent Weibull gaps."""

    process: Literal["weibull"]
    """`weibull`."""
    cv: PositiveCv
    """Coefficient of variation of the gaps."""


class MmppState(Model):
    """One state of a Markov-modulated Poisson process."""

    rate_per_s: Annotated[float, Quantity("request rate", zero=True)]
    """Arrivals per second while in the state; '0 req/s' is taken."""
    mean_stay_s: Annotated[float, Quantity("time", least="1 ms")]
    """Mean time in the state."""


def _several(states: tuple[MmppState, ...]) -> tuple[MmppState, ...]:
    if len(states) < 2:
        raise fault(f"must have two states or more (got {len(states)}), one alone is process: poisson")
    return states


class Mmpp(Model):
    """Poisson arrivals whose rate jumps between states."""

    process: Literal["mmpp"]
    """`mmpp`."""
    states: Annotated[
        tuple[MmppState, ...], AfterValidator(_several), Field(json_schema_extra={"minItems": 2})
    ]
    """Two or more states; the next is any other, equally likely, unless `moves` says otherwise."""
    moves: tuple[tuple[Share, ...], ...] | None = None
    """Row i: the chance to go from state i to each state; the diagonal is 0 and a row sums to 1."""

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        if not any(state.rate_per_s for state in self.states):
            raise fault(
                "has no state with arrivals (got rate 0 in all), give one state a rate above 0", "states"
            )
        if self.moves is None:
            return self
        n = len(self.states)
        if len(self.moves) != n or any(len(row) != n for row in self.moves):
            raise fault(
                f"needs moves of {n} rows of {n} chances, one for each state (got {len(self.moves)} rows)",
                "moves",
            )
        for i, row in enumerate(self.moves):
            if row[i] != 0 or abs(sum(row) - 1) > 1e-9:
                raise fault(
                    f"needs each row of moves to sum to 1 with 0 on the diagonal (got row {i + 1}: {list(row)})",
                    "moves",
                    i,
                )
        return self


class Hawkes(Model):
    """Self-exciting arrivals: each causes others."""

    process: Literal["hawkes"]
    """`hawkes`."""
    rate_per_s: RequestRate
    """Long-run mean of all arrivals per second."""
    branching: Annotated[Number, Field(ge=0, le=0.99)]
    """Arrivals that one arrival causes on average."""
    decay_s: Annotated[float, Quantity("time", most="1 day")]
    """Mean delay of a caused arrival."""


class ClosedLoop(Model):
    """A fixed number of users: each sends, waits for the answer, thinks, sends again."""

    process: Literal["closed_loop"]
    """`closed_loop`."""
    concurrency: Many
    """Users."""
    think_time_s: SecondsOrZero = 0.0
    """Mean think time, exponential; '0 s' is taken."""


_PROCESSES: dict[str, Any] = {
    "constant": Constant,
    "poisson": Poisson,
    "gamma": GammaGaps,
    "weibull": Weibull,
    "mmpp": Mmpp,
    "hawkes": Hawkes,
}


def _chooser(known: tuple[str, ...]) -> Any:
    def which(value: Any) -> str:
        if isinstance(value, Model):
            return str(value.process)  # type: ignore[attr-defined]
        example = "like {process: poisson, rate: 12 req/s}"
        if not isinstance(value, dict):
            raise fault(f"must be a mapping with a process (got {shown(value)}), {example}")
        if "process" not in value:
            raise fault(f"has no process (got {shown(value)}), {example}; processes: {', '.join(known)}")
        name = value["process"]
        if name not in known:
            from fleetplan.errors import unknown_name

            raise fault(f"has an {unknown_name('process', str(name), known)}")
        return str(name)

    return which


if TYPE_CHECKING:
    Process = Constant | Poisson | GammaGaps | Weibull | Mmpp | Hawkes
else:
    Process = forms(_chooser(tuple(_PROCESSES)), **_PROCESSES)


class Profile(Model):
    """A process whose rate follows a profile over the day or the week, and may grow over months."""

    process: Literal["profile"]
    """`profile`."""
    inside: Process
    """The process whose rate the profile multiplies."""
    factors: Annotated[tuple[FactorOrZero, ...], *NotEmpty] = (1.0,)
    """Factors of the rate over one period, repeated; used as they are, so a mean of 1 keeps the mean rate."""
    slot_s: Seconds = 3600.0
    """Length of one factor's slot: 24 slots of an hour are a day, 168 a week."""
    start_s: SecondsOrZero = 0.0
    """Where in the period the run begins."""
    growth_per_month: Annotated[Number, Field(gt=-1, le=10)] = 0.0
    """Growth of the rate per month: 0.1 multiplies it by 1.1 every 30.4375 days."""

    @model_validator(mode="after")
    def _some(self) -> Self:
        if not any(self.factors):
            raise fault(
                "has factors that are all 0 (got no arrivals at any hour), give one above 0", "factors"
            )
        return self


_ALL: dict[str, Any] = {**_PROCESSES, "profile": Profile, "closed_loop": ClosedLoop}
if TYPE_CHECKING:
    Arrivals = Process | Profile | ClosedLoop
else:
    Arrivals = forms(_chooser(tuple(_ALL)), **_ALL)

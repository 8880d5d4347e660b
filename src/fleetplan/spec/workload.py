"""The traffic of a scenario: classes by their laws, a shipped empirical table, or a trace file replayed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, model_validator

from fleetplan.spec.adapters import Adapters
from fleetplan.spec.arrivals import Arrivals, ClosedLoop
from fleetplan.spec.base import (
    Count,
    Cv,
    Exponent,
    Factor,
    Model,
    Name,
    NotEmpty,
    Number,
    OpenShare,
    PositiveShare,
    Seconds,
    SecondsOrZero,
    Share,
    Text,
    Tokens,
    Whole,
    fault,
    forms,
    one_key,
)
from fleetplan.spec.lengths import Length
from fleetplan.spec.slo import Slo
from fleetplan.spec.units import Quantity, shown


class SharedPrefix(Model):
    """A share of the prompts begins with one of a few common texts (system prompts, documents)."""

    tokens: Length
    """Length of a common text [tokens]."""
    share: PositiveShare = 1.0
    """Share of the prompts that begin with one."""
    count: Annotated[Count, Field(le=10**7)] = 1
    """How many different texts."""
    zipf: Exponent = 0.0
    """Zipf exponent of their popularity; 0: all alike."""
    added: bool = Field(False, strict=True)
    """true: it comes on top of `prompt_tokens`; false: `prompt_tokens` is the whole prompt."""


class Sessions(Model):
    """Arrivals are starts of sessions (or of agent loops), whose context grows turn by turn."""

    turns: Length
    """Turns of a session (steps of an agent loop)."""
    gap_s: SecondsOrZero
    """Mean time between an answer and the next turn."""
    gap_cv: Cv = 1.0
    """Coefficient of variation of that gap; 1: exponential."""
    max_context_tokens: Tokens | None = None
    """A session ends before the turn that would exceed this context."""


class SemanticCache(Model):
    """A cache in front of the model answers a share of the requests."""

    hit_share: Share
    """Share of the requests found in the cache."""
    stale_share: Share = 0.0
    """Share of the hits refused as stale, which go on to the model."""


class Retries(Model):
    """Some requests are sent again, whatever became of them: extra arrivals, not what a full queue or lost patience causes."""

    chance: OpenShare
    """Chance that a request is sent again."""
    delay_s: Annotated[float, Quantity("time", most="1 day")]
    """Mean delay before it is."""
    most: Annotated[Count, Field(le=100)] = 1
    """Most repetitions of one request."""


LONGEST_PAUSE_S = 30 * 86400.0


class Clients(Model):
    """Who found the queue full, or gave up waiting for a first token, sends the request again after a pause that grows."""

    retries: Annotated[Count, Field(le=100)]
    """Most times that one request is sent again; promises count it once, by its last attempt, latency from the first."""
    backoff_s: Seconds = 1.0
    """Pause before the first repetition."""
    growth: Annotated[Number, Field(ge=1, le=100)] = 2.0
    """Each further pause is this many times the one before."""

    @model_validator(mode="after")
    def _in_time(self) -> Self:
        pause = self.backoff_s * self.growth ** (self.retries - 1)
        if pause > LONGEST_PAUSE_S:
            raise fault(
                f"has a last pause of {pause / 86400:.3g} days (got {self.retries} retries that grow {self.growth:g}-fold), at most "
                f"{LONGEST_PAUSE_S / 86400:g} days are taken; give fewer retries or a smaller growth"
            )
        return self


class Deadline(Model):
    """A job of many requests that must be done in time, whatever each of them takes."""

    requests: Count
    """Requests of the job."""
    within_s: Seconds
    """Time in which all must be served; the fleet is fed evenly over it."""

    @property
    def rate_per_s(self) -> float:
        """The rate [requests/s] that must be kept."""
        return self.requests / self.within_s


class TrafficClass(Model):
    """One class of requests with its own lengths, arrivals and promises."""

    name: Name
    """Name of the class, unique in the scenario."""
    arrivals: Arrivals | None = None
    """When its requests arrive; left out where the workload has common `arrivals` and the class a `share`."""
    share: PositiveShare | None = None
    """Share of the workload's common arrivals."""
    deadline: Deadline | None = None
    """A job with a deadline, instead of arrivals and an slo; `policy.max_utilisation` is the share of the time that it may take."""
    prompt_tokens: Length | None = None
    """Prompt length [tokens], shared prefix included."""
    output_tokens: Length | None = None
    """Visible output length [tokens]."""
    empirical: Name | None = None
    """Draw prompt and output together from this shipped table instead."""
    correlation: Annotated[Number, Field(gt=-1, lt=1)] = 0.0
    """Spearman rank correlation of prompt and output."""
    reasoning_tokens: Length | None = None
    """Tokens generated before the first visible one, on top of `output_tokens`."""
    max_output_tokens: Tokens | None = None
    """The request's `max_tokens`: longer outputs are cut."""
    priority: Annotated[Whole, Field(le=1000)] = 0
    """0 is the most urgent."""
    timeout_s: Seconds | None = None
    """A request without a first token after this gives up and counts as a miss."""
    answers: Annotated[Count, Field(le=1024)] = 1
    """Parallel samples of one prompt."""
    shared_prefix: SharedPrefix | None = None
    """Common beginnings of the prompts."""
    sessions: Sessions | None = None
    """Multi-turn structure."""
    semantic_cache: SemanticCache | None = None
    """A cache in front."""
    retries: Retries | None = None
    """Repetitions by chance, as extra arrivals."""
    adapters: Adapters | None = None
    """LoRA adapters that its requests use; left out: the model as it is."""
    slo: Slo | None = None
    """Its promises; a class without is carried and not judged."""

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        if self.empirical is None:
            absent = [k for k in ("prompt_tokens", "output_tokens") if getattr(self, k) is None]
            if absent:
                raise fault(
                    f"has no {' and no '.join(absent)} (class {self.name}), give lengths, or empirical: <table>"
                )
        elif self.prompt_tokens is not None or self.output_tokens is not None or self.correlation:
            raise fault(
                f"has empirical and its own lengths or correlation (class {self.name}), give one or the other",
                "empirical",
            )
        if self.arrivals is not None and self.share is not None:
            raise fault(
                f"has arrivals and a share (class {self.name}), give arrivals, or a share of common ones",
                "share",
            )
        if self.deadline is not None:
            keys = ("arrivals", "share", "slo", "sessions", "semantic_cache", "retries", "timeout_s")
            if other := [key.removesuffix("_s") for key in keys if getattr(self, key) is not None]:
                raise fault(
                    f"has a deadline and {', '.join(other)} (class {self.name}), but a job's requests are there from the start and "
                    f"all must be served; drop {'it' if len(other) == 1 else 'them'}, or the deadline",
                    other[0],
                )
        if isinstance(self.arrivals, ClosedLoop):
            waits(self.name, self.slo, self.output_tokens == 1)
        if (
            self.slo is not None
            and 1 in (self.output_tokens, self.max_output_tokens)
            and self.reasoning_tokens is None
        ):
            for metric in ("tpot", "itl"):
                if any(promise.metric == metric for promise in self.slo.promises()):
                    raise fault(
                        f"promises {metric} with outputs of one token (class {self.name}), which have none; drop it",
                        "slo",
                        metric,
                    )
        return self


class ClassesWorkload(Model):
    """Traffic by classes, each with its own arrivals, or sharing common ones."""

    classes: Annotated[tuple[TrafficClass, ...], *NotEmpty]
    """The classes."""
    arrivals: Arrivals | None = None
    """Common arrivals, of which each class takes its `share`."""
    rate_scale: Factor = 1.0
    """Factor on every rate (and on the users of a closed loop)."""
    clients: Clients | None = None
    """What clients do whose request was refused or timed out; left out: it is lost, and a miss."""

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        coherent(self.classes, self.arrivals)
        return self


def waits(name: str, slo: Any, one_token: bool) -> None:
    """Refuse users who wait for answers that no promise bounds: what they send follows from it."""
    whole = getattr(slo, "attainment", None)
    promised = {
        m
        for m in ("ttft", "tpot", "e2e")
        if any(getattr(of, f"{m}_s", None) is not None for of in (slo, whole))
    }
    if "e2e" in promised or ("ttft" in promised and ("tpot" in promised or one_token)):
        return
    raise fault(
        f"are users who wait for answers that no promise bounds (class {name}, got {', '.join(sorted(promised)) or 'no slo'}), give e2e, or "
        "ttft and tpot: n users who think z and are answered within T send n/(z + T) requests/s",
        "arrivals",
    )


def coherent(classes: tuple[Any, ...], arrivals: Any) -> None:
    """Refuse classes of one name, without arrivals or share, or without any promise."""
    names = [c.name for c in classes]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise fault(
                f"is the name of an earlier class too (got {name}), names must differ", "classes", i, "name"
            )
    if arrivals is None:
        for i, c in enumerate(classes):
            if c.arrivals is None and getattr(c, "deadline", None) is None:
                raise fault(
                    f"has no arrivals (class {c.name}), give each class its arrivals, or the workload common arrivals and each class a share",
                    "classes",
                    i,
                )
    else:
        if isinstance(arrivals, ClosedLoop):
            if len(classes) > 1:
                raise fault(
                    f"are users who wait, and there are {len(classes)} classes (got closed_loop), give each class users of its own",
                    "arrivals",
                )
            waits(classes[0].name, classes[0].slo, getattr(classes[0], "output_tokens", 1) == 1)
        for i, c in enumerate(classes):
            if c.share is None and getattr(c, "deadline", None) is None:
                raise fault(
                    f"has no share of the workload's common arrivals (class {c.name}), give each class one",
                    "classes",
                    i,
                )
        total = sum(c.share or 0.0 for c in classes)
        if abs(total - 1) > 1e-9:
            said = ", ".join(f"{c.name} {c.share:g}" for c in classes if c.share is not None)
            last = max((i for i, c in enumerate(classes) if c.share is not None), default=0)
            raise fault(
                f"is the last of shares that sum to {total:g} (got {said}), they must sum to 1",
                "classes",
                last,
                "share",
            )
    if all(c.slo is None and getattr(c, "deadline", None) is None for c in classes):
        raise fault("has no promise in any class (got no slo), give at least one class an slo or a deadline")


class _Recorded(Model):
    rate_scale: Factor = 1.0
    """Factor on the recorded rate: down by thinning, up by superposition of shifted copies; time is never squeezed."""
    spread_s: SecondsOrZero = 60.0
    """Copies are shifted by up to this; '0 s' keeps every burst of every copy in step."""
    name: Name = "all"
    """Name of the one class."""
    priority: Annotated[Whole, Field(le=1000)] = 0
    """0 is the most urgent."""
    timeout_s: Seconds | None = None
    """A request without a first token after this gives up and counts as a miss."""
    max_output_tokens: Tokens | None = None
    """The request's `max_tokens`: longer outputs are cut."""
    adapters: Adapters | None = None
    """LoRA adapters that its requests use, drawn; left out: the model as it is."""
    clients: Clients | None = None
    """What clients do whose request was refused or timed out; left out: it is lost, and a miss."""
    slo: Slo
    """Its promises."""


class EmpiricalWorkload(_Recorded):
    """Traffic drawn from a table of facts of a real trace: arrivals per second and joint lengths."""

    empirical: Name
    """A table of data/workloads/, like azure-2023-conv."""
    arrivals: Arrivals | None = None
    """Another arrival process than the recorded seconds."""

    @model_validator(mode="after")
    def _answered(self) -> Self:
        if isinstance(self.arrivals, ClosedLoop):
            waits(self.name, self.slo, False)
        return self


class TraceWorkload(_Recorded):
    """The rows of a trace file, replayed."""

    trace: Text
    """Path of the file, from the spec's folder."""
    format: Text | None = None
    """Its format, where the detected one is to be overruled."""


_WORKLOADS: dict[str, Any] = {
    "classes": ClassesWorkload,
    "empirical": EmpiricalWorkload,
    "trace": TraceWorkload,
}


def _which(value: Any) -> str:
    if isinstance(value, Model):
        return next(key for key, kind in _WORKLOADS.items() if isinstance(value, kind))
    if not isinstance(value, dict):
        raise fault(f"must be a mapping (got {shown(value)}), with one of: {', '.join(_WORKLOADS)}")
    return one_key("a workload", tuple(_WORKLOADS))(value)


if TYPE_CHECKING:
    Workload = ClassesWorkload | EmpiricalWorkload | TraceWorkload
else:
    Workload = forms(_which, **_WORKLOADS)

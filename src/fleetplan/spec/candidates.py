"""The grid of a scenario: which GPUs, how many, in which precision, run by which scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from fleetplan.spec.base import (
    BytesOrZero,
    BytesPerSecond,
    Count,
    Degree,
    Factor,
    ManyOrNone,
    Model,
    Name,
    NotEmpty,
    NotNegative,
    PositiveShare,
    Seconds,
    SecondsOrZero,
    Sequences,
    Share,
    Text,
    Tokens,
    TokensOrNone,
    fault,
    forms,
)
from fleetplan.spec.caching import PrefixCaching, PrefixCachingChoice
from fleetplan.spec.disaggregation import Disaggregation, disaggregation_form
from fleetplan.spec.preempting import Preemption
from fleetplan.spec.units import shown


def _distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    seen: list[Any] = []
    for i, value in enumerate(values):
        if value in seen:
            raise fault(
                f"names {shown(value) if isinstance(value, (str, int)) else 'an entry'} twice, each entry once",
                i,
            )
        seen.append(value)
    return values


class Scheduler(Model):
    """How the engine forms a step, and its caps."""

    policy: Literal["static", "continuous", "chunked", "prefill_first"] = "chunked"
    """`static` (request-level), `continuous` (whole prompts), `chunked` (token budget; what current engines do), `prefill_first` (the older default)."""
    max_num_seqs: Sequences = 256
    """Most sequences in a step."""
    max_num_batched_tokens: Tokens | None = None
    """Token budget of a step, for chunked and prefill_first; 8192 where left out."""
    max_queued_requests: TokensOrNone | None = None
    """A request that finds this many waiting at its replica is rejected."""
    max_queued_tokens: TokensOrNone | None = None
    """A request that would lift the waiting prompt tokens of its replica above this is rejected."""
    priority: Literal["none", "strict", "weighted"] = "strict"
    """Of waiting requests whose classes' priorities differ: `strict` (the most urgent first), `weighted` (by turns), `none` (first come first served)."""
    priority_weights: Annotated[tuple[Factor, ...], *NotEmpty] | None = None
    """`weighted`: admissions of priority 0, 1, … among those that wait."""
    max_wait_s: Seconds | None = None
    """Who waits and arrived longer ago than this goes first, whatever its priority; left out: no such bound."""
    preemption: Preemption = "recompute"
    """What becomes of a sequence that gives way where KV blocks run out: `recompute`, or {swap: 64 GB, link: 25 GB/s}."""
    max_adapters: Annotated[Count, Field(le=4096)] | None = None
    """LoRA adapters that are resident at once on one engine; their memory comes off the KV cache."""
    adapter_load_s: SecondsOrZero | None = None
    """Time that one which is not resident adds to the step that admits its request."""
    adapter_link_bytes_per_s: BytesPerSecond | None = None
    """Instead: bandwidth from the host to each GPU; the time is the bytes of one adapter on one GPU over it."""

    @model_validator(mode="after")
    def _adapters(self) -> Self:
        given = [
            key
            for key, value in (
                ("adapter_load", self.adapter_load_s),
                ("adapter_link", self.adapter_link_bytes_per_s),
            )
            if value is not None
        ]
        if self.max_adapters is None and given:
            raise fault(
                f"has {given[0]} without max_adapters, which says how many are resident; add it, or drop {given[0]}",
                given[0],
            )
        if self.max_adapters is not None and len(given) != 1:
            raise fault(
                f"needs adapter_load or adapter_link with max_adapters (got {'both' if given else 'neither'}), give one, like adapter_load: "
                "30 ms or adapter_link: 25 GB/s",
                "adapter_link" if given else "max_adapters",
            )
        return self

    @model_validator(mode="after")
    def _swap(self) -> Self:
        if self.preemption != "recompute" and self.policy in ("static", "continuous"):
            raise fault(
                f"gives preemption by swap to {self.policy}, which never preempts; drop it, or use chunked or prefill_first",
                "preemption",
            )
        return self

    @model_validator(mode="after")
    def _weights(self) -> Self:
        if (self.priority == "weighted") != (self.priority_weights is not None):
            raise fault(
                f"has priority {self.priority} {'without' if self.priority_weights is None else 'with'} priority_weights, which weighted "
                "alone takes, like {priority: weighted, priority_weights: [8, 2, 1]}",
                "priority" if self.priority_weights is None else "priority_weights",
            )
        if self.priority == "none" and self.max_wait_s is not None:
            raise fault(
                "gives max_wait without priorities (got priority none), drop it, or take strict or weighted",
                "max_wait",
            )
        return self

    @model_validator(mode="after")
    def _budget(self) -> Self:
        if self.max_num_batched_tokens is not None and self.policy in ("static", "continuous"):
            raise fault(
                f"gives max_num_batched_tokens to {self.policy} (got {self.max_num_batched_tokens}), which has no "
                "token budget; drop it, or use chunked",
                "max_num_batched_tokens",
            )
        if self.max_num_batched_tokens is None and self.policy in ("chunked", "prefill_first"):
            object.__setattr__(self, "max_num_batched_tokens", 8192)  # so that the meaning holds the default
        return self


class Speculation(Model):
    """Speculative decoding: who drafts, how many tokens, and how many are accepted."""

    draft: Name
    """Who drafts: a method (eagle3, mtp, ngram, suffix, medusa) or a catalogue model."""
    tokens: Annotated[Count, Field(le=32)]
    """Drafted tokens a step, K."""
    acceptance: Annotated[tuple[Share, ...], *NotEmpty] | None = None
    """By position: the chance that draft i is accepted given that the ones before it were; one value or K of them."""
    acceptance_from: Name | None = None
    """A row of the table of measured acceptance, instead."""
    draft_cost: Annotated[NotNegative, Field(le=100)] | None = None
    """Time of one draft step over that of one target step, c; left out: from the draft's own step-time model."""
    draft_memory_bytes: BytesOrZero | None = None
    """Memory of the draft on each GPU; left out: weights and KV of the catalogue's model, or of the method's head."""
    off_above: ManyOrNone | None = None
    """A step in which more sequences than this decode drafts nothing; left out: every step drafts."""

    @model_validator(mode="after")
    def _acceptance(self) -> Self:
        if (self.acceptance is None) == (self.acceptance_from is None):
            raise fault(
                "needs a stated acceptance (got none or two), give acceptance: [0.75, 0.70, 0.66] by position, or "
                "acceptance_from: <row of the measured table>"
            )
        if self.acceptance is not None and len(self.acceptance) not in (1, self.tokens):
            raise fault(
                f"has {len(self.acceptance)} acceptances for {self.tokens} drafts, give 1 (the same at each) or {self.tokens}",
                "acceptance",
            )
        return self

    @property
    def by_position(self) -> tuple[float, ...] | None:
        """Acceptance of each of the K drafts."""
        if self.acceptance is None:
            return None
        return self.acceptance * self.tokens if len(self.acceptance) == 1 else self.acceptance


def _speculation(value: Any) -> str:
    if isinstance(value, (dict, Speculation)):
        return "speculation"
    if value != "none":
        raise fault(
            f"must be none or a mapping (got {shown(value)}), like {{draft: eagle3, tokens: 3, acceptance: [0.75, 0.7, 0.66]}}"
        )
    return "none"


class Engine(Model):
    """The serving engine and the settings of its memory."""

    name: Text = "vllm"
    """An engine of data/engines.yaml, or the path, from the spec's folder, of a calibration that `fleetplan calibrate` wrote: a .yaml file."""
    gpu_memory_utilization: PositiveShare = 0.9
    """Share of the usable memory that the engine takes (engines differ in what it multiplies)."""
    block_size: Annotated[Count, Field(le=65_536)] = 16
    """Tokens of a KV block."""
    prefix_caching: PrefixCachingChoice = False
    """true: common beginnings of prompts (shared prefixes, sessions, hashed blocks of traces) stay in the KV cache and are shared; or a
    mapping with the tiers below HBM. vLLM V1 and SGLang do it unless told otherwise; left out, every prompt is computed whole, which is cautious."""

    @property
    def caching(self) -> PrefixCaching | None:
        """The prefix cache; None: off."""
        if isinstance(self.prefix_caching, PrefixCaching):
            return self.prefix_caching
        return PrefixCaching() if self.prefix_caching else None

    @property
    def file(self) -> str | None:
        """The path, where the name is one."""
        return self.name if "/" in self.name or self.name.endswith((".yaml", ".yml")) else None


def _engine(value: Any) -> str:
    return "settings" if isinstance(value, (dict, Engine)) else "name"


Named = Annotated[Text, AfterValidator(lambda name: Engine(name=name))]


EACH_ONCE = (*NotEmpty, AfterValidator(_distinct))

if TYPE_CHECKING:
    SpeculationChoice = Literal["none"] | Speculation
    DisaggregationChoice = Literal["none"] | Disaggregation
    EngineChoice = Engine
else:
    DisaggregationChoice = forms(disaggregation_form, none=Literal["none"], disaggregation=Disaggregation)
    SpeculationChoice = forms(_speculation, none=Literal["none"], speculation=Speculation)
    EngineChoice = forms(_engine, settings=Engine, name=Named)


class Candidates(Model):
    """Every combination of these is a candidate; those that cannot run are kept with the reason."""

    gpu: Annotated[tuple[Text, ...], *EACH_ONCE]
    """GPUs of data/gpus.yaml, by name or alias."""
    tensor_parallel: Annotated[tuple[Degree, ...], *EACH_ONCE] = (1,)
    """GPUs that split every layer."""
    pipeline_parallel: Annotated[tuple[Degree, ...], *EACH_ONCE] = (1,)
    """Stages that split the layers: as many steps are in flight, one in each, on one queue and one KV cache."""
    data_parallel: Annotated[tuple[Degree, ...], *EACH_ONCE] = (1,)
    """Attention replicas inside one replica."""
    expert_parallel: Annotated[tuple[Degree, ...], *EACH_ONCE] = (1,)
    """Ranks over which the experts of a MoE are spread."""
    network_bytes_per_s: BytesPerSecond | None = None
    """Bandwidth of one GPU to GPUs of other nodes, one direction, where a replica spans nodes; left out: the catalogue's, where it knows one."""
    weights: Annotated[tuple[Name, ...], *EACH_ONCE] = ("bf16",)
    """Schemes of the weights: bf16, fp8, int8, int4, nvfp4, mxfp4, …"""
    kv_cache: Annotated[tuple[Name, ...], *EACH_ONCE] = ("bf16",)
    """Types of the KV cache: bf16, fp8, int8, …"""
    scheduler: Annotated[tuple[Scheduler, ...], *EACH_ONCE] = (Scheduler(),)
    """Schedulers and their caps."""
    speculation: Annotated[tuple[SpeculationChoice, ...], *EACH_ONCE] = ("none",)
    """`none`, or speculative decoding with a stated acceptance."""
    disaggregated: Annotated[tuple[DisaggregationChoice, ...], *EACH_ONCE] = ("none",)
    """`none`, or prefill and decode in pools of their own; where ratios of their replicas are listed, each is a candidate."""
    engine: Annotated[tuple[EngineChoice, ...], *EACH_ONCE] = (Engine(),)
    """Engines: a name, the path of a calibration, or a mapping with its memory settings."""

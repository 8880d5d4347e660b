"""The parts of a layer: each knows its tensors and what one token keeps in the cache."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

from fleetplan.physics.compressed import CompressedAttention
from fleetplan.physics.tensor import Group, Tensor, matrix, vector


@dataclass(frozen=True)
class FullAttention:
    """Softmax attention with its own keys and values; `window` limits how many tokens a query sees and the cache holds."""

    n_heads: int
    n_kv_heads: int
    head_dim: int
    v_head_dim: int | None = None
    """Width of a value head where it differs from `head_dim`."""
    window: int | None = None
    """Sliding window, or chunk of chunked attention [tokens]; None: the whole context."""
    qkv_bias: bool = False
    o_bias: bool = False
    output_gate: bool = False
    """The query projection is twice as wide: its second half gates the output."""
    shared_key_value: bool = False
    """Values are made by the key projection (both are cached)."""
    cached: bool = True
    """False: the layer reads the cache of an earlier layer and keeps none."""
    projects_kv: bool = True
    """False: the layer stores no key and value projections."""
    q_rank: int | None = None
    """Width of a low-rank step that the queries pass, the same on every rank."""
    small_parameters: int = 0
    """Query/key norms, sinks and other vectors [parameters]."""

    @property
    def v_dim(self) -> int:
        return self.head_dim if self.v_head_dim is None else self.v_head_dim

    @property
    def kv_elements_per_token(self) -> int:
        """Cached numbers a token: n_kv·(d_k + d_v)."""
        return self.n_kv_heads * (self.head_dim + self.v_dim) if self.cached else 0

    def cache(self, dtype_bytes: float) -> tuple[tuple[int | None, float], ...]:
        """(window, bytes a token) of what one sequence keeps; window None: of every token."""
        return ((self.window, self.kv_elements_per_token * dtype_bytes),) if self.cached else ()

    @property
    def state_bytes(self) -> int:
        return 0

    @property
    def flop_per_pair(self) -> int:
        """FLOP of one query-key pair: 2·n_h·(d_k + d_v), the textbook's 4·n_h·d_h."""
        return 2 * self.n_heads * (self.head_dim + self.v_dim)

    def tensors(self, d: int) -> Iterable[Tensor]:
        q = self.n_heads * self.head_dim * (2 if self.output_gate else 1)
        k, v = self.n_kv_heads * self.head_dim, self.n_kv_heads * self.v_dim
        if self.q_rank is not None:
            yield matrix("q down", "attention", d, self.q_rank, "replicated")
        yield matrix("q", "attention", d if self.q_rank is None else self.q_rank, q)
        if self.projects_kv:
            yield matrix("k", "attention", d, k, "kv_heads")
            if not self.shared_key_value:
                yield matrix("v", "attention", d, v, "kv_heads")
        yield matrix("o", "attention", self.n_heads * self.v_dim, d)
        if self.qkv_bias:
            yield vector("qkv bias", "bias", q + k + (0 if self.shared_key_value else v), "tensor")
        if self.o_bias:
            yield vector("o bias", "bias", d)
        if self.small_parameters:
            yield vector("attention norms and sinks", "norm", self.small_parameters)


@dataclass(frozen=True)
class Indexer:
    """The side attention that picks which tokens a sparse layer reads; it caches one quantised key a token."""

    n_heads: int
    head_dim: int
    query_width: int
    """Width of what its query projection reads: q_lora_rank, or d."""
    cache_bytes_per_token: int
    """Key bytes and scale, as stored whatever the KV dtype."""
    tokens: int | None = None
    """How many tokens a query reads at most (top-k)."""
    small_parameters: int = 0


@dataclass(frozen=True)
class LatentAttention:
    """Multi-head latent attention (MLA): one latent and one rotary key a token, replicated on every tensor-parallel rank."""

    n_heads: int
    q_lora_rank: int | None
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    indexer: Indexer | None = None
    qkv_bias: bool = False
    window: int | None = None
    cached: bool = True

    @property
    def kv_elements_per_token(self) -> int:
        """Cached numbers a token: kv_lora_rank + qk_rope_head_dim, once."""
        return self.kv_lora_rank + self.qk_rope_head_dim

    @property
    def indexer_bytes_per_token(self) -> int:
        return self.indexer.cache_bytes_per_token if self.indexer else 0

    def cache(self, dtype_bytes: float) -> tuple[tuple[int | None, float], ...]:
        """As in `FullAttention`; the indexer's keys are as stored, whatever the KV dtype."""
        return ((self.window, self.kv_elements_per_token * dtype_bytes + self.indexer_bytes_per_token),)

    @property
    def state_bytes(self) -> int:
        return 0

    @property
    def flop_per_pair(self) -> int:
        """FLOP of one pair, absorbed (decode): 2·n_h·(2·kv_lora_rank + rope)."""
        return 2 * self.n_heads * (2 * self.kv_lora_rank + self.qk_rope_head_dim)

    @property
    def flop_per_pair_prefill(self) -> int:
        """FLOP of one pair, unabsorbed (prefill): 2·n_h·(nope + rope + v)."""
        return 2 * self.n_heads * (self.qk_nope_head_dim + self.qk_rope_head_dim + self.v_head_dim)

    def tensors(self, d: int) -> Iterable[Tensor]:
        qk = self.qk_nope_head_dim + self.qk_rope_head_dim
        if self.q_lora_rank is None:
            yield matrix("q", "attention", d, self.n_heads * qk)
        else:
            yield matrix("q down", "attention", d, self.q_lora_rank, "replicated")
            yield matrix("q up", "attention", self.q_lora_rank, self.n_heads * qk)
            yield vector("q latent norm", "norm", self.q_lora_rank)
        yield matrix("kv down", "attention", d, self.kv_lora_rank + self.qk_rope_head_dim, "replicated")
        yield vector("kv latent norm", "norm", self.kv_lora_rank)
        yield matrix(
            "kv up",
            "attention",
            self.kv_lora_rank,
            self.n_heads * (self.qk_nope_head_dim + self.v_head_dim),
        )
        yield matrix("o", "attention", self.n_heads * self.v_head_dim, d)
        if self.indexer:
            index = self.indexer
            yield matrix(
                "indexer q", "indexer", index.query_width, index.n_heads * index.head_dim, "replicated"
            )
            yield matrix("indexer k", "indexer", d, index.head_dim, "replicated")
            yield matrix("indexer weights", "indexer", d, index.n_heads, "replicated")
            if index.small_parameters:
                yield vector("indexer norm", "norm", index.small_parameters)


@dataclass(frozen=True)
class StateMixer:
    """A layer with a constant state a sequence (Mamba, gated delta net): its matrices are listed, not derived."""

    kind: str
    matrices: tuple[tuple[str, int, int], ...]
    """(name, in, out) of each projection."""
    small_parameters: int
    """Convolution, decay, norms and biases [parameters]."""
    state_bytes: int
    """Bytes of one sequence's state in this layer: recurrent state and convolution tail, at the dtype they are kept in."""
    flop_per_token_recurrent: int = 0
    """FLOP a token spends on the state besides the projections."""
    window: int | None = None
    cached: bool = False

    def cache(self, dtype_bytes: float) -> tuple[tuple[int | None, float], ...]:
        """Nothing: no token is kept."""
        return ()

    @property
    def flop_per_pair(self) -> int:
        return 0

    def tensors(self, d: int) -> Iterable[Tensor]:
        for name, inputs, outputs in self.matrices:
            yield matrix(name, "mixer", inputs, outputs)
        if self.small_parameters:
            yield vector("convolution, decay and norms", "norm", self.small_parameters, "tensor")


@dataclass(frozen=True)
class NoMixer:
    """A layer without attention or state (no-op attention, or a feed-forward-only block)."""

    matrices: tuple[tuple[str, int, int], ...] = ()
    """(name, in, out): a linear map that stands in for attention."""
    window: int | None = None
    cached: bool = False

    def cache(self, dtype_bytes: float) -> tuple[tuple[int | None, float], ...]:
        """Nothing: no token is kept."""
        return ()

    @property
    def state_bytes(self) -> int:
        return 0

    @property
    def flop_per_pair(self) -> int:
        return 0

    def tensors(self, d: int) -> Iterable[Tensor]:
        for name, inputs, outputs in self.matrices:
            yield matrix(name, "attention", inputs, outputs)


@dataclass(frozen=True)
class DenseFfn:
    """A feed-forward block: 3·d·d_ff parameters gated, 2·d·d_ff otherwise."""

    d_ff: int
    gated: bool = True
    bias: bool = False

    def tensors(self, d: int) -> Iterable[Tensor]:
        yield from _mlp("ffn", d, self.d_ff, self.gated)
        if self.bias:
            yield vector("ffn bias", "bias", self.d_ff * (2 if self.gated else 1) + d, "tensor")


@dataclass(frozen=True)
class MoeFfn:
    """Experts behind a router, with shared experts that every token uses."""

    experts: int
    top_k: int
    d_ff: int
    """Width of one expert."""
    shared_d_ff: int = 0
    """Summed width of the experts that every token uses."""
    gated: bool = True
    bias: bool = False
    """Each expert (and the router) has biases."""
    shared_gate: bool = False
    """A d → 1 projection weighs the shared expert."""
    router_bias: int = 0
    """Correction biases and scales of the router [parameters]."""
    latent: int | None = None
    """Width that the experts work in where it is not d (a shared down and up projection)."""

    def tensors(self, d: int) -> Iterable[Tensor]:
        inner = d if self.latent is None else self.latent
        yield matrix("router", "router", d, self.experts, "replicated")
        if self.router_bias:
            yield vector("router bias", "bias", self.router_bias)
        for tensor in _mlp("expert", inner, self.d_ff, self.gated):
            yield dataclasses.replace(
                tensor,
                count=self.experts,
                active_count=self.top_k,
                multiplied=self.top_k,
                shard="expert",
                group="expert",
            )
        if self.bias:
            wide = self.d_ff * (2 if self.gated else 1) + inner
            yield Tensor("expert bias", "bias", (wide,), self.experts, "expert", self.top_k, 0)
        if self.latent is not None:
            yield matrix("latent down", "ffn", d, self.latent, "replicated")
            yield matrix("latent up", "ffn", self.latent, d, "replicated")
        if self.shared_d_ff:
            yield from _mlp("shared expert", d, self.shared_d_ff, self.gated, "shared_expert")
        if self.shared_gate:
            yield matrix("shared expert gate", "router", d, 1, "replicated")


@dataclass(frozen=True)
class NoFfn:
    """A layer without a feed-forward block."""

    def tensors(self, d: int) -> Iterable[Tensor]:
        return ()


Mixer = FullAttention | LatentAttention | CompressedAttention | StateMixer | NoMixer
Ffn = DenseFfn | MoeFfn | NoFfn


@dataclass(frozen=True)
class LayerGroup:
    """`count` consecutive layers of one shape."""

    count: int
    mixer: Mixer
    ffn: Ffn
    norm_parameters: int
    """Norm weights and biases of one layer [parameters]: 2·d for the usual two RMS norms."""
    extra: tuple[Tensor, ...] = ()
    """Tensors of one layer besides mixer, ffn and norms."""

    def tensors(self, d: int) -> Iterable[Tensor]:
        """Every tensor of one layer."""
        yield from self.mixer.tensors(d)
        yield from self.ffn.tensors(d)
        yield from self.extra
        if self.norm_parameters:
            yield vector("norms", "norm", self.norm_parameters)


def _mlp(name: str, d: int, d_ff: int, gated: bool, group: Group = "ffn") -> Iterable[Tensor]:
    yield matrix(f"{name} up", group, d, d_ff)
    if gated:
        yield matrix(f"{name} gate", group, d, d_ff)
    yield matrix(f"{name} down", group, d_ff, d)

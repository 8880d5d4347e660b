"""What a workload is, in plain frozen dataclasses: the form that specs are mapped onto and that `generate` draws from.

All rates are requests (or session starts) per second, all times seconds, all lengths tokens. Lengths are made by
`lengths.lengths(kind, **given)`, which solves a mean and a percentile for the parameters; empirical and replayed
traffic by `workloads.empirical(name)` and `workloads.replay(path)`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# --- arrivals ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Constant:
    """One arrival every 1/rate seconds, the first after half a gap."""

    rate_per_s: float


@dataclass(frozen=True)
class Poisson:
    """Memoryless arrivals: gaps are exponential, their CV is 1."""

    rate_per_s: float


@dataclass(frozen=True)
class Gamma:
    """Independent gamma gaps with coefficient of variation `cv`.

    The `burstiness` of engines' own benchmarks is the gamma *shape* 1/cv²: lower is burstier (0.25 is cv 2, inf is constant).
    """

    rate_per_s: float
    cv: float


@dataclass(frozen=True)
class Weibull:
    """Independent Weibull gaps with coefficient of variation `cv`."""

    rate_per_s: float
    cv: float


@dataclass(frozen=True)
class Mmpp:
    """Poisson arrivals whose rate jumps between two or more states (Markov-modulated Poisson process).

    State i lasts an exponential time of mean `mean_stay_s[i]` and is left for state j with chance `moves[i][j]`
    (None: any other state, equally likely). A rate scale multiplies the rates and leaves the stays as they are.
    """

    rates_per_s: tuple[float, ...]
    mean_stay_s: tuple[float, ...]
    moves: tuple[tuple[float, ...], ...] | None = None


@dataclass(frozen=True)
class Hawkes:
    """Self-exciting arrivals: each one causes `branching` (in [0, 1)) others on average, after Exp(decay_s) delays.

    `rate_per_s` is the long-run mean of all arrivals; the spontaneous ones come at rate·(1 − branching).
    """

    rate_per_s: float
    branching: float
    decay_s: float


@dataclass(frozen=True)
class Profile:
    """Any process `inside`, its rate multiplied by a profile over day or week and by growth over months.

    `factors` covers one period, `slot_s` each (24 of 3600 s: a day; 168: a week), and repeats; factors are used as they
    are, so a mean of 1 keeps the inside process's mean rate. `start_s` is where in the period time 0 lies.
    `growth_per_month` 0.1 multiplies the rate by 1.1 every 30.4375 days after `start_s`.
    """

    inside: Process
    factors: tuple[float, ...] = (1.0,)
    slot_s: float = 3600.0
    start_s: float = 0.0
    growth_per_month: float = 0.0


@dataclass(frozen=True)
class ClosedLoop:
    """A fixed number of users: each sends, waits for the answer, thinks (exponential, mean `think_s`), sends again.

    The rate is an outcome of the system, so a rate scale multiplies the users. `mean_service_s` is the time to answer that is planned
    with: it sets the nominal rate and how many turns are drawn for a horizon; 0: none is, and there is no rate.
    """

    users: int
    think_s: float
    mean_service_s: float = 0.0


@dataclass(frozen=True, eq=False)
class Recorded:
    """Arrivals per second of a real trace, replayed second by second, with random places inside each second.

    A horizon beyond the recording starts it again. Scaled down by thinning; scaled up by superposition of copies, each shifted
    (round the end) by a random whole number of seconds below `spread_s`: 0 keeps every burst of every copy in step, the
    recording's length makes the copies independent. Time is never squeezed.
    """

    counts: Ints
    name: str = ""
    spread_s: float = 60.0


@dataclass(frozen=True, eq=False)
class Replay:
    """The very rows of a trace: times, lengths and what else it tells. Scaled like `Recorded`."""

    arrival_s: Floats
    prompt_tokens: Ints
    output_tokens: Ints
    period_s: float
    name: str = ""
    spread_s: float = 60.0
    session_id: Ints | None = None
    block_offsets: Ints | None = None
    block_hashes: Ints | None = None
    hash_block_tokens: int = 0


Process = Constant | Poisson | Gamma | Weibull | Mmpp | Hawkes
Arrivals = Process | Profile | ClosedLoop | Recorded | Replay

# --- lengths ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fixed:
    """Always `tokens`."""

    tokens: float


@dataclass(frozen=True)
class Uniform:
    """Every whole number from `low` to `high`, both included, equally likely."""

    low: int
    high: int


@dataclass(frozen=True)
class Normal:
    """Gaussian of `mean` and standard deviation `sd`, rounded; below `minimum` it is cut to `minimum`."""

    mean: float
    sd: float


@dataclass(frozen=True)
class LogNormal:
    """exp(Normal(mu, sigma)), rounded."""

    mu: float
    sigma: float


@dataclass(frozen=True)
class GammaLength:
    """Gamma with `shape` and `scale`, rounded; mean shape·scale."""

    shape: float
    scale: float


@dataclass(frozen=True)
class Geometric:
    """1, 2, 3, … with chance p(1 − p)^(k−1): a constant EOS hazard p; mean 1/p."""

    p: float


@dataclass(frozen=True)
class Pareto:
    """P(X > x) = (scale/x)^alpha for x ≥ scale; heavy tail, so a cap (`Bounded.maximum`) is needed."""

    scale: float
    alpha: float


@dataclass(frozen=True)
class Zipf:
    """k in 1..largest with chance ∝ k^−exponent, times `step` tokens."""

    exponent: float
    largest: int
    step: int = 1


@dataclass(frozen=True)
class Quantiles:
    """Quantile function through the given points (probability, tokens), straight in between; 0 and 1 must be among them."""

    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Stops:
    """Output length from what ends an answer: EOS, a stop sequence, or `max_tokens`, whichever is first.

    `eos` holds (from_token, hazard): from that token on every token is the last with that chance. A stop sequence ends
    it with chance `stop_hazard` per token (a truncation). `max_tokens` cuts (a truncation too).
    """

    eos: tuple[tuple[int, float], ...]
    stop_hazard: float = 0.0
    max_tokens: int | None = None


@dataclass(frozen=True)
class Bounded:
    """`inside` cut to [minimum, maximum]: what is beyond piles up at the bound, as `max_tokens` does."""

    inside: Distribution
    minimum: int = 1
    maximum: int | None = None


@dataclass(frozen=True, eq=False)
class Joint:
    """Pairs (prompt, output) with counts, drawn together, so that their correlation is the recording's."""

    prompt_tokens: Ints
    output_tokens: Ints
    counts: Ints
    name: str = ""


Distribution = (
    Fixed | Uniform | Normal | LogNormal | GammaLength | Geometric | Pareto | Zipf | Quantiles | Stops
)
Lengths = Distribution | Bounded

# --- structure --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SharedPrefix:
    """A share of the prompts begins with one of `count` common texts of `tokens` tokens, popular by Zipf(`zipf`).

    `prompt_tokens` of the class is the *whole* prompt, the prefix included (as engines count it); a prompt that is not longer
    than its prefix shares all but its last token. With `added` the prefix comes on top instead.
    """

    tokens: Lengths
    share: float = 1.0
    count: int = 1
    zipf: float = 0.0
    added: bool = False


@dataclass(frozen=True)
class Sessions:
    """Arrivals are session starts; each has `turns` turns (an agent loop: steps), `gap_s` apart (mean, exponential, or `gap_cv`).

    A turn's prompt is the whole conversation so far plus new tokens drawn from the class's `prompt_tokens`; a turn that
    would exceed `max_context_tokens` ends the session. An agent's tool results are its new tokens.
    """

    turns: Lengths
    gap_s: float
    gap_cv: float = 1.0
    max_context_tokens: int | None = None


@dataclass(frozen=True)
class SemanticCache:
    """A cache in front answers `hit_share` of the requests; of the hits, `stale_share` is refused as stale and goes on to the model."""

    hit_share: float
    stale_share: float = 0.0


@dataclass(frozen=True)
class Retries:
    """Each request fails with `chance` and is sent again after Exp(delay_s), at most `most` times: extra load, same lengths."""

    chance: float
    delay_s: float
    most: int = 1


@dataclass(frozen=True)
class Adapters:
    """LoRA adapters: the share of a class's requests that use each; what is left of 1 uses none. The turns of a session use one.

    Adapters of one name in two classes are the same; without `names` they are the class's own.
    """

    shares: tuple[float, ...]
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Class:
    """One class of traffic.

    Lengths are `joint`, or `prompt_tokens` and `output_tokens` with Spearman rank `correlation` (a Gaussian copula), or the
    rows of a `Replay`. `reasoning_tokens` are generated before the visible ones and come on top of `output_tokens`.
    `share` is used only where the workload has common arrivals.
    """

    name: str
    arrivals: Arrivals | None = None
    share: float | None = None
    prompt_tokens: Lengths | None = None
    output_tokens: Lengths | None = None
    joint: Joint | None = None
    correlation: float = 0.0
    reasoning_tokens: Lengths | None = None
    max_output_tokens: int | None = None
    priority: int = 0
    timeout_s: float = float("inf")
    answers: int = 1
    adapters: Adapters | None = None
    shared_prefix: SharedPrefix | None = None
    sessions: Sessions | None = None
    semantic_cache: SemanticCache | None = None
    retries: Retries | None = None


@dataclass(frozen=True)
class Workload:
    """Classes with their own arrivals, or with common `arrivals` of which each class takes its `share`."""

    classes: tuple[Class, ...]
    arrivals: Arrivals | None = None
    max_context_tokens: int | None = None
    """Prompt + output beyond this is clipped (output first down to 1, then the prompt), and counted."""

"""Speculative sampling run a million times on toy bigram pairs: does the output follow the target's law?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import chdtrc

from fleetplan.errors import InputError
from fleetplan.speculation.theory import Floats, acceptance

Ints = NDArray[np.int64]
LEVEL = 1e-3
MOST_TV = 0.02
_FEWEST = 20_000


@dataclass(frozen=True)
class Sampling:
    """How logits become a law: penalty on tokens seen, temperature, top-k, top-p; temperature 0 is greedy."""

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        faults = []
        if not (np.isfinite(self.temperature) and self.temperature >= 0):
            faults.append(f"temperature: must be a finite number ≥ 0 (got {self.temperature!r}); 0 is greedy")
        if self.top_k is not None and self.top_k < 1:
            faults.append(f"top_k: must be at least 1, or None (got {self.top_k!r})")
        if not 0 < self.top_p <= 1:
            faults.append(f"top_p: must lie in (0, 1] (got {self.top_p!r})")
        if not self.repetition_penalty > 0:
            faults.append(f"repetition_penalty: must be > 0 (got {self.repetition_penalty!r})")
        if faults:
            raise InputError(*faults)

    def law(self, logits: ArrayLike, seen: ArrayLike | None = None) -> Floats:
        """Probabilities over the last axis; `seen`, of the same shape, marks tokens that the penalty falls on.

        A penalised logit is divided by the penalty where it is positive and multiplied where it is not (Keskar et al.
        2019). Top-p keeps the fewest most likely tokens whose sum reaches p. Ties of greedy go to the lowest token.

        >>> Sampling(temperature=0).law([0.1, 2.0, 1.0]).tolist()
        [0.0, 1.0, 0.0]
        """
        x = np.array(logits, dtype=np.float64)
        if seen is not None and self.repetition_penalty != 1:
            worse = np.where(x > 0, x / self.repetition_penalty, x * self.repetition_penalty)
            x = np.where(np.asarray(seen, dtype=bool), worse, x)
        if self.temperature == 0:
            greedy: Floats = (np.arange(x.shape[-1]) == x.argmax(axis=-1)[..., None]).astype(np.float64)
            return greedy
        x = x / self.temperature
        order = np.argsort(-x, axis=-1, kind="stable")
        ranked = np.take_along_axis(x, order, axis=-1)
        p = np.exp(ranked - ranked[..., :1])
        if self.top_k is not None:
            p[..., self.top_k :] = 0.0
        p /= p.sum(axis=-1, keepdims=True)
        before = np.cumsum(p, axis=-1) - p
        p = np.where(before < self.top_p - 1e-15, p, 0.0)
        p /= p.sum(axis=-1, keepdims=True)
        law = np.zeros_like(p)
        np.put_along_axis(law, order, p, axis=-1)
        return law


@dataclass(frozen=True, eq=False)
class Exactness:
    """What a run of speculative sampling showed, against the target's own law."""

    rounds: int
    alpha_theory: tuple[float, float]
    """Σ min(p, q) at the first draft, and at the second given that the first was accepted."""
    alpha_measured: tuple[float, float]
    alpha_standard_error: tuple[float, float]
    first_p_value: float
    """Chi-square test of the first token's law."""
    second_p_value: float
    """Chi-square test of the second token given the first, all rows together."""
    first_tv: float
    second_tv: tuple[float | None, ...]
    """Total variation of each row of the second token; None for a first token seen in fewer than 20,000 rounds."""
    impossible_tokens: int
    """Tokens emitted that the target cannot emit."""

    @property
    def exact(self) -> bool:
        """Whether both tests pass at level 1e-3, every judged row is within 0.02 total variation, nothing impossible came."""
        tv = [self.first_tv, *(t for t in self.second_tv if t is not None)]
        return (
            self.impossible_tokens == 0
            and min(self.first_p_value, self.second_p_value) >= LEVEL
            and max(tv) <= MOST_TV
        )


def bigram_logits(vocabulary: int, closeness: float, seed: int) -> tuple[Floats, Floats]:
    """Logits, shape (V, V), of a toy target and of a draft that is the target plus noise of size 1 − `closeness`."""
    if not 2 <= vocabulary <= 64 or not 0 <= closeness <= 1:
        raise InputError(
            f"vocabulary in 2..64 and closeness in 0..1 are needed (got {vocabulary!r} and {closeness!r})"
        )
    rng = np.random.default_rng(seed)
    target = rng.normal(size=(vocabulary, vocabulary))
    return target, target + (1 - closeness) * 2 * rng.normal(size=(vocabulary, vocabulary))


def exactness(
    target_logits: ArrayLike,
    draft_logits: ArrayLike,
    target: Sampling,
    draft: Sampling,
    *,
    rounds: int = 1_000_000,
    start: int = 0,
    seed: int = 0,
    rule: str = "exact",
) -> Exactness:
    """Two tokens a round, from token `start`, by speculative sampling with two drafts; counted against the target's law.

    Draft x is accepted with min(1, p(x)/q(x)), else the token comes from max(0, p − q) normalised and a new pass begins
    (Leviathan et al. 2023). Both sides see the same history for the repetition penalty. `rule` "naive" resamples a
    rejected draft from p itself, which is wrong: the test must find that.
    """
    pl, ql = np.asarray(target_logits, dtype=np.float64), np.asarray(draft_logits, dtype=np.float64)
    v = pl.shape[-1]
    if pl.shape != (v, v) or ql.shape != pl.shape:
        raise InputError(f"logits: two square tables of one shape are needed (got {pl.shape} and {ql.shape})")
    if rule not in ("exact", "naive"):
        raise InputError(f"rule: must be exact or naive (got {rule!r})")
    rng = np.random.default_rng(seed)
    first_seen = np.arange(v) == start
    second_seen = first_seen | np.eye(v, dtype=bool)
    p1, q1 = target.law(pl[start], first_seen), draft.law(ql[start], first_seen)
    p2, q2 = target.law(pl, second_seen), draft.law(ql, second_seen)
    zeros = np.zeros(rounds, dtype=np.int64)
    one, ok1 = _speculate(p1[None], q1[None], zeros, rng, rule)
    two, ok2 = _speculate(p2, q2, one, rng, rule)
    # Where the first draft was accepted the second is the same pass's next draft, else a new pass's first: same tables.
    counts1 = np.bincount(one, minlength=v)
    counts2 = np.bincount(one * v + two, minlength=v * v).reshape(v, v)
    # An accepted first draft has law ∝ min(p1, q1).
    weight = np.minimum(p1, q1)
    a1, a2 = float(acceptance(p1, q1)), acceptance(p2, q2)
    second = float(weight @ a2 / weight.sum()) if weight.sum() > 0 else 0.0
    passed = int(ok1.sum())
    m2 = float(ok2[ok1].mean()) if passed else 0.0
    errors = (np.sqrt(a1 * (1 - a1) / rounds), np.sqrt(second * (1 - second) / max(passed, 1)))
    rows = counts2.sum(axis=1)
    tv2 = tuple(
        float(np.abs(c / n - p).sum() / 2) if n >= _FEWEST else None
        for c, n, p in zip(counts2, rows, p2, strict=True)
    )
    impossible = int(counts1[p1 == 0].sum() + counts2[p2 == 0].sum())
    return Exactness(
        rounds,
        (a1, second),
        (float(ok1.mean()), m2),
        (float(errors[0]), float(errors[1])),
        _chi_square(counts1[None], p1[None]),
        _chi_square(counts2, p2),
        float(np.abs(counts1 / rounds - p1).sum() / 2),
        tv2,
        impossible,
    )


def settings_table(
    vocabulary: int = 8, closeness: float = 0.75, *, rounds: int = 200_000, seed: int = 0
) -> list[dict[str, float | str | bool]]:
    """What sampling settings do to acceptance, on one toy pair: a row a setting, theory beside measurement."""
    pl, ql = bigram_logits(vocabulary, closeness, seed)
    plain, greedy = Sampling(), Sampling(temperature=0)
    settings = [
        ("both at temperature 1", plain, plain),
        ("both at temperature 0.5", Sampling(0.5), Sampling(0.5)),
        ("both at temperature 1.5", Sampling(1.5), Sampling(1.5)),
        ("both top-k 3", Sampling(top_k=3), Sampling(top_k=3)),
        ("target top-k 3, draft plain", Sampling(top_k=3), plain),
        ("both top-p 0.8", Sampling(top_p=0.8), Sampling(top_p=0.8)),
        ("both repetition penalty 1.3", Sampling(repetition_penalty=1.3), Sampling(repetition_penalty=1.3)),
        ("target repetition penalty 1.3, draft plain", Sampling(repetition_penalty=1.3), plain),
        ("both greedy", greedy, greedy),
        ("target greedy, draft at temperature 1", greedy, plain),
        ("target at temperature 1, draft greedy", plain, greedy),
    ]
    table: list[dict[str, float | str | bool]] = []
    for index, (name, target, draft) in enumerate(settings):
        # Over all starts, equally: one start says little under greedy.
        runs = [
            exactness(
                pl, ql, target, draft, rounds=rounds // vocabulary, start=s, seed=seed + 1000 * index + s
            )
            for s in range(vocabulary)
        ]
        alpha = float(np.mean([run.alpha_theory[0] for run in runs]))
        table.append(
            {
                "setting": name,
                "acceptance": alpha,
                "acceptance_measured": float(np.mean([run.alpha_measured[0] for run in runs])),
                "acceptance_standard_error": float(
                    np.sqrt(sum(run.alpha_standard_error[0] ** 2 for run in runs)) / vocabulary
                ),
                "least_p_value": min(min(run.first_p_value, run.second_p_value) for run in runs),
                "impossible_tokens": sum(run.impossible_tokens for run in runs),
            }
        )
    return table


def _speculate(
    p: Floats, q: Floats, state: Ints, rng: np.random.Generator, rule: str
) -> tuple[Ints, NDArray[np.bool_]]:
    drafted = _draw(q, state, rng)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(q > 0, p / q, 0.0)
    accepted = rng.random(len(state)) < ratio[state, drafted]
    rest = np.maximum(p - q, 0.0) if rule == "exact" else p
    total = rest.sum(axis=1, keepdims=True)
    # Where p = q nothing is ever rejected, and what the row holds does not matter.
    rest = np.divide(rest, total, out=p.copy(), where=total > 1e-300)
    out = drafted.copy()
    rejected = np.flatnonzero(~accepted)
    out[rejected] = _draw(rest, state[rejected], rng)
    return out, accepted


def _draw(law: Floats, state: Ints, rng: np.random.Generator) -> Ints:
    # Inverse of the cumulative law; the last possible token's bound is 1 exactly, so that none beyond it is drawn.
    cumulative = np.cumsum(law, axis=1)
    cumulative = np.where(cumulative >= cumulative[:, -1:], 1.0, cumulative)
    u = rng.random(len(state))
    token = np.zeros(len(state), dtype=np.int64)
    for column in cumulative.T[:-1]:
        token += u >= column[state]
    return token


def _chi_square(counts: Ints, law: Floats) -> float:
    rows = counts.sum(axis=1)
    expected = rows[:, None] * law
    statistic, freedom = 0.0, 0
    for observed, wanted in zip(counts[rows > 0], expected[rows > 0], strict=True):
        # Cells that expect fewer than 5 are put together, as the test's own approximation needs.
        small = (wanted < 5) & (wanted > 0)
        cells = [*zip(observed[wanted >= 5], wanted[wanted >= 5], strict=True)]
        if small.any():
            cells.append((observed[small].sum(), wanted[small].sum()))
        statistic += sum((o - w) ** 2 / w for o, w in cells)
        freedom += len(cells) - 1
    return float(chdtrc(freedom, statistic)) if freedom else 1.0

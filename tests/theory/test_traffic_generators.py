"""Each generator against its law: means, CVs, quantiles and correlation within computed standard errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from fleetplan.errors import InputError
from fleetplan.traffic import arrivals, generate
from fleetplan.traffic.facts import interarrival_cv
from fleetplan.traffic.lengths import draw, lengths, mean_tokens, quantile
from fleetplan.traffic.model import (
    Arrivals,
    Class,
    Constant,
    Fixed,
    Gamma,
    Hawkes,
    Lengths,
    Mmpp,
    Poisson,
    Process,
    Profile,
    Stops,
    Weibull,
    Workload,
)
from fleetplan.traffic.patterns import dispersion

SIGMAS = 4.0
"""Standard errors allowed: a right generator passes each check with chance 0.99994."""

PROCESSES: list[Process | Profile] = [
    Poisson(20.0),
    Gamma(20.0, 3.0),
    Gamma(20.0, 0.5),
    Weibull(20.0, 2.0),
    Mmpp((4.0, 60.0), (6.0, 3.0)),
    Mmpp((0.0, 30.0, 50.0), (2.0, 3.0, 1.0), ((0.0, 0.5, 0.5), (1.0, 0.0, 0.0), (0.2, 0.8, 0.0))),
    Hawkes(20.0, 0.7, 0.5),
    Profile(Poisson(20.0), (0.5, 1.5), 50.0),
]


@pytest.mark.parametrize("process", PROCESSES, ids=lambda p: type(p).__name__)
def test_the_mean_rate_is_the_one_asked_for(process: Process | Profile) -> None:
    runs, horizon = 200, 200.0
    counts = [
        len(arrivals.times_s(process, horizon, 1.0, np.random.SeedSequence(seed))) for seed in range(runs)
    ]
    error = np.std(counts, ddof=1) / math.sqrt(runs)
    want = (arrivals.mean_rate_per_s(process) or 0.0) * horizon
    assert abs(np.mean(counts) - want) < SIGMAS * error
    assert error < 0.05 * want


@pytest.mark.parametrize("cv", [0.25, 1.0, 3.0])
@pytest.mark.parametrize("kind", [Gamma, Weibull])
def test_the_gaps_have_the_cv_asked_for(kind: type[Gamma] | type[Weibull], cv: float) -> None:
    cvs = [
        interarrival_cv(arrivals.times_s(kind(50.0, cv), 2000.0, 1.0, np.random.SeedSequence(seed))) or 0.0
        for seed in range(24)
    ]
    assert abs(np.mean(cvs) - cv) < SIGMAS * np.std(cvs, ddof=1) / math.sqrt(len(cvs)) + 0.002 * cv


@pytest.mark.parametrize("scale_s", [1.0, 10.0])
@pytest.mark.parametrize(
    ("process", "amount", "speed"),
    [
        (Hawkes(20.0, 0.7, 0.5), 1 / 0.3**2 - 1, 0.3 / 0.5),
        # 2·π1·π2·(r1 − r2)²/(rate·c), c the sum of both rates of leaving
        (Mmpp((4.0, 60.0), (6.0, 3.0)), 2 * (2 / 9) * 56**2 / ((4 * 2 + 60) / 3 * 0.5), 0.5),
    ],
)
def test_dispersion_follows_its_closed_form(
    process: Process, amount: float, speed: float, scale_s: float
) -> None:
    want = 1 + amount * (1 - (1 - math.exp(-speed * scale_s)) / (speed * scale_s))
    got = []
    for seed in range(40):
        time = arrivals.times_s(process, 2000.0, 1.0, np.random.SeedSequence(seed))
        got.append(dispersion(np.bincount(time.astype(np.int64), minlength=2000), (scale_s,))[scale_s])
    assert abs(np.mean(got) - want) < SIGMAS * np.std(got, ddof=1) / math.sqrt(len(got)) + 0.02 * want


def test_a_constant_process_and_burstiness_as_a_shape() -> None:
    assert arrivals.times_s(Constant(4.0), 1.0, 1.0, np.random.SeedSequence(0)).tolist() == [
        0.0,
        0.25,
        0.5,
        0.75,
    ]
    # Field 64: CV 13.151 is shape 0.00578; shape 0.25 is CV 2.
    assert round(1 / 13.151**2, 5) == 0.00578
    assert 0.25**-0.5 == 2


LAWS: list[tuple[Lengths, float, float]] = [
    (lengths("lognormal", mean=1200, p99=6000), 1200, 6000),
    (
        lengths("lognormal", p50=400, p99=4000),
        math.exp(math.log(400) + (math.log(10) / stats.norm.ppf(0.99)) ** 2 / 2),
        4000,
    ),
    (lengths("gamma", mean=1200, p99=6000), 1200, 6000),
    (lengths("normal", mean=1000, sd=100), 1000, 1000 + 100 * stats.norm.ppf(0.99)),
    (lengths("geometric", mean=250), 250, math.ceil(math.log(0.01) / math.log1p(-1 / 250))),
    (lengths("uniform", low=1, high=1000), 500.5, 990),
    (lengths("pareto", scale=100, alpha=3.0), 150, 100 * 0.01 ** (-1 / 3)),
    (Stops(((1, 0.004),)), 250, math.ceil(math.log(0.01) / math.log1p(-0.004))),
]


@pytest.mark.parametrize(("law", "mean", "p99"), LAWS)
def test_lengths_have_the_mean_and_percentile_asked_for(law: Lengths, mean: float, p99: float) -> None:
    n = 200_000
    drawn = draw(law, np.random.default_rng(5).random(n)).astype(np.float64)
    assert abs(drawn.mean() - mean) < SIGMAS * drawn.std() / math.sqrt(n) + 1e-9
    below = (drawn <= p99 + 0.5).mean()
    assert abs(below - 0.99) < SIGMAS * math.sqrt(0.99 * 0.01 / n) + 1 / mean
    assert mean_tokens(law) == pytest.approx(mean, rel=0.01)


def test_stops_by_pieces_agree_with_the_hazard_multiplied_out() -> None:
    law = Stops(((1, 0.02), (50, 0.1), (80, 0.0)), 0.01, 120)
    survive, cdf = 1.0, []
    for k in range(1, 121):
        eos = 0.02 if k < 50 else 0.1 if k < 80 else 0.0
        survive *= (1 - eos) * 0.99
        cdf.append(1 - survive if k < 120 else 1.0)
    u = (np.arange(20_000) + 0.5) / 20_000
    assert np.array_equal(quantile(law, u), np.searchsorted(cdf, u, side="left") + 1.0)


def test_zipf_and_quantiles_are_what_they_say() -> None:
    drawn = draw(lengths("zipf", exponent=1.0, largest=3), np.random.default_rng(1).random(110_000))
    share = np.bincount(drawn)[1:] / len(drawn)
    for k, want in enumerate((6 / 11, 3 / 11, 2 / 11)):
        assert abs(share[k] - want) < SIGMAS * math.sqrt(want * (1 - want) / len(drawn))
    assert quantile(lengths("quantiles", p0=10, p50=20, p100=100), 0.75) == 60


def test_rank_correlation_is_kept_by_the_copula() -> None:
    chat = Class(
        "chat", Poisson(100.0), prompt_tokens=lengths("lognormal", mean=1200, cv=1.5),
        output_tokens=lengths("gamma", mean=250, cv=1.0), correlation=-0.4,
    )  # fmt: skip
    n = 50_000
    r = generate(Workload((chat,)), n_requests=n, seed=3)
    assert abs(stats.spearmanr(r.prompt_tokens, r.output_tokens).statistic + 0.4) < SIGMAS / math.sqrt(n)


@pytest.mark.parametrize(
    "given",
    [{"mean": 100, "p99": 5000}, {"mean": 100, "p99": 90}, {"mean": 100}, {"mean": -1, "cv": 1}],
)
def test_moments_that_no_lognormal_has_are_refused(given: dict[str, float]) -> None:
    with pytest.raises(InputError):
        lengths("lognormal", **given)


def test_common_random_numbers() -> None:
    """Lengths do not move when arrivals do, and a longer run extends a shorter one."""

    def of(a: Arrivals, duration: float) -> tuple[list[int], list[float]]:
        c = Class("a", a, prompt_tokens=lengths("geometric", mean=100), output_tokens=Fixed(5))
        r = generate(Workload((c,)), duration_s=duration, seed=9)
        return r.prompt_tokens[:50].tolist(), r.arrival_s[:50].tolist()

    short, long, bursty = of(Poisson(10.0), 20), of(Poisson(10.0), 2000), of(Gamma(10.0, 3.0), 2000)
    assert short == long
    assert short[0] == bursty[0]
    mmpp = Mmpp((5.0, 20.0), (3.0, 3.0))
    assert of(mmpp, 30) == of(mmpp, 3000)


@pytest.mark.parametrize(
    "process",
    [Poisson(0.0), Poisson(math.inf), Hawkes(1.0, 1.0, 1.0), Gamma(1.0, math.nan), Mmpp((1.0,), (1.0,))],
)
def test_arrivals_that_cannot_be_are_refused(process: Process) -> None:
    with pytest.raises(InputError, match="arrivals"):
        arrivals.check(process)

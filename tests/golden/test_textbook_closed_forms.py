"""The worked numbers of queueing and speculation, right to the digits that they show."""

import pytest

from fleetplan.queueing import md1, mm1
from fleetplan.speculation import best_drafts_textbook, expected_tokens, speedup_textbook


def shown(value: float, digits: int) -> pytest.approx:
    return pytest.approx(value, abs=0.5000001 * 10**-digits)


@pytest.mark.parametrize(
    ("arrival_per_s", "service_s", "mean", "p95"),
    [
        (40, 0.020, shown(0.1, 4), shown(0.2996, 4)),
        (20, 0.020, shown(0.03333, 5), shown(0.09986, 5)),
        (40, 0.010, shown(0.016667, 6), shown(0.04993, 5)),
    ],
    ids=["one server", "two servers, chosen at random", "int8"],
)
def test_mm1(arrival_per_s, service_s, mean, p95):
    result = mm1(arrival_per_s, service_s)
    assert result.sojourn_mean_s == mean
    assert result.sojourn_percentile_s(0.95) == p95


def test_mm1_load_and_number_in_system():
    assert mm1(40, 0.020).rho == pytest.approx(0.8)
    assert mm1(40, 0.020).in_system_mean == pytest.approx(4.0)
    assert mm1(40, 0.010).in_system_mean == shown(0.6667, 4)


@pytest.mark.parametrize("rho", [0.1, 0.5, 0.9, 0.99])
def test_md1_waits_half_as_long_as_mm1(rho):
    assert md1(rho, 1.0).wait_mean_s == pytest.approx(mm1(rho, 1.0).wait_mean_s / 2)


@pytest.mark.parametrize(
    ("alpha", "drafts", "value"),
    [
        (0.8, 5, shown(3.6893, 4)),
        (0.6, 5, shown(2.3834, 4)),
        (0.8, 4, shown(3.3616, 4)),
        (0.941, 4, shown(4.444, 3)),
        (0.889, 4, shown(4.007, 3)),
        (0.829, 4, shown(3.558, 3)),
        (0.721, 4, shown(2.886, 3)),
        (1.0, 4, 5.0),
    ],
)
def test_expected_tokens(alpha, drafts, value):
    assert expected_tokens(alpha, drafts) == value


@pytest.mark.parametrize(
    ("alpha", "drafts", "cost", "value"),
    [(0.8, 5, 0.1, 2.4595), (0.6, 5, 0.2, 1.1917), (0.8, 4, 0.05, 2.8013)],
)
def test_textbook_speedup(alpha, drafts, cost, value):
    assert speedup_textbook(alpha, drafts, cost) == shown(value, 4)


@pytest.mark.parametrize(("alpha", "drafts"), [(0.9, 8), (0.8, 5), (0.7, 3), (0.5, 2)])
def test_best_draft_length_at_cost_0_15(alpha, drafts):
    assert best_drafts_textbook(alpha, 0.15) == drafts

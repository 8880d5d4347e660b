"""Simulations that are kept: the same is run once, another is run, and a long one is not kept."""

from types import SimpleNamespace
from typing import Any

import pytest

from fleetplan.sizing import runs
from fleetplan.traffic.requests import Requests


def counting() -> Any:
    """A machine that counts its runs."""
    made = SimpleNamespace(asked=[])

    def run(requests: Requests, engines: int, seed: int) -> object:
        made.asked.append((len(requests), engines, seed))
        return object()

    made.run = run
    return made


def test_the_same_run_is_simulated_once_and_another_anew():
    built, requests = counting(), Requests.of([0.0, 1.0], 100, 3)
    first = runs.run(built, requests, 2, 0)
    assert runs.run(built, requests, 2, 0) is first
    assert built.asked == [(2, 2, 0)]
    equal = Requests.of([0.0, 1.0], 100, 3)
    others = [
        (built, requests, 3, 0),
        (built, requests, 2, 1),
        (built, equal, 2, 0),
        (counting(), requests, 2, 0),
    ]
    assert all(runs.run(*other) is not first for other in others)


def test_no_more_is_kept_than_may_be(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(runs, "MOST_REQUESTS", 8)
    monkeypatch.setattr(runs, "_kept", type(runs._kept)())
    built, few, many = counting(), Requests.of([0.0, 1.0], 100, 3), Requests.of([0.0, 1.0, 2.0], 100, 3)
    for engines in range(1, 6):
        runs.run(built, few, engines, 0)
    assert len(runs._kept) == 4
    runs.run(built, few, 5, 0)
    assert len(built.asked) == 5
    runs.run(built, few, 1, 0)  # the oldest went
    assert len(built.asked) == 6
    for _ in range(2):
        runs.run(built, many, 1, 0)  # too long to be kept
    assert len(built.asked) == 8

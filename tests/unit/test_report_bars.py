"""Bars keep their height however few they are."""

import pytest

from fleetplan.report.bars import stacked_bars, tornado


@pytest.mark.parametrize("bars", [1, 2, 12])
def test_few_bars_are_not_squeezed_out_by_axis_and_legend(bars: int) -> None:
    labels = [f"TP {i}" for i in range(bars)]
    parts = ("weights", "KV cache", "rest")
    stacked = stacked_bars(
        [{"label": label, "part": part, "value": 1.0} for label in labels for part in parts],
        "GiB",
        parts,
        labels,
    )
    legend_and_axis = 16 * len(parts) + 40  # a line a part where the page is narrow; ticks and title
    assert stacked["height"] - legend_and_axis >= 25 * bars
    levers = tornado([{"label": label, "value": 2.0, "better": True} for label in labels], "USD/h", 1.0)
    assert levers["height"] - 40 >= 25 * bars


def test_every_part_of_a_bar_has_a_colour_of_its_own() -> None:
    parts = ("weights", "KV cache", "LoRA adapters", "runtime and reserve")
    rows = [{"label": "one", "part": part, "value": 1.0} for part in parts]
    shades = stacked_bars(rows, "memory", parts, ["one"])["encoding"]["color"]["scale"]["range"]
    assert len(set(shades)) == 4
    assert shades[-1] == "var(--rest)"

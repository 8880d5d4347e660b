"""A time as an option of a command."""

from __future__ import annotations

from typing import Any

import click


class Seconds(click.ParamType):
    """A time [s] that the engine's clock can hold beside a latency; inf only where it means never."""

    name = "seconds"

    def __init__(self, never: bool = False) -> None:
        self.never = never

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        from fleetplan.engine.files import LONGEST_S

        try:
            seconds = float(value)
        except ValueError:
            seconds = float("nan")
        if not (0 <= seconds <= LONGEST_S or (self.never and seconds == float("inf"))):
            self.fail(f"is no time (got {value}), a number of seconds from 0 to {LONGEST_S:g} would be right")
        return seconds

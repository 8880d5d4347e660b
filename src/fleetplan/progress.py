"""Signs of life of long work: how far it is, with the time it took, for the person who waits or for the log of a job."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TextIO, TypeVar

T = TypeVar("T")

SILENT_S = 10.0
"""A log has the outermost steps; what they are made of is told only where it has heard nothing for this long."""
TERMINAL_S = 20.0
"""Beside a job's log its terminal hears of it this often."""

_within: list[str] = []
_teller: _Teller | None = None


def say(text: str) -> None:
    """How far the work is, or what came of a step; nothing happens unless somebody listens (`shown`)."""
    if _teller is not None:
        _teller.say(text)


@contextmanager
def during(text: str) -> Iterator[None]:
    """A step of the work, within the ones around it."""
    _within.append(text)
    try:
        if _teller is not None:
            _teller.enter()
        yield
    finally:
        _within.pop()


def each(items: Sequence[T], what: str, name: Callable[[T], str] = str) -> Iterator[T]:
    """The items, each a step: `candidate 7 of 32: h100-sxm TP4`."""
    for number, item in enumerate(items, 1):
        with during(f"{what} {number} of {len(items)}: {name(item)}" if _teller is not None else what):
            yield item


@contextmanager
def shown() -> Iterator[None]:
    """Tell what `say` is told while this lasts: on a terminal one line on stderr that is written over, and gone in the end.

    In a job of the workflow (FLEETPLAN_PROGRESS names a file descriptor to its terminal) lines on stderr, which is its log, and now and
    then one for the terminal. Else, or with FLEETPLAN_PROGRESS=off, nothing.
    """
    global _teller
    asked = os.environ.get("FLEETPLAN_PROGRESS", "")
    if asked.isdigit():
        terminal = None
        with suppress(OSError):  # a descriptor that nobody opened
            terminal = os.fdopen(os.dup(int(asked)), "w", encoding="utf-8")
        _teller = _Log(sys.stderr, terminal)
    elif asked != "off" and sys.stderr.isatty():
        _teller = _Line(sys.stderr)
    try:
        yield
    finally:
        if _teller is not None:
            _teller.end()
        _teller = None
        _within.clear()


class _Teller:
    def __init__(self, out: TextIO) -> None:
        self.out, self.began = out, time.monotonic()

    def say(self, text: str) -> None:
        raise NotImplementedError

    def enter(self) -> None:
        raise NotImplementedError

    def end(self) -> None:
        raise NotImplementedError

    def line(self, *more: str) -> str:
        return f"{time.monotonic() - self.began:7.1f} s  {': '.join((*_within, *more))}"


class _Line(_Teller):
    """One line of a terminal, written over."""

    def say(self, text: str) -> None:
        self._write(self.line(text))

    def enter(self) -> None:
        self._write(self.line())

    def end(self) -> None:
        self._write("")

    def _write(self, text: str) -> None:
        self.out.write(f"\r{text[: shutil.get_terminal_size().columns - 1]}\x1b[K")
        self.out.flush()


class _Log(_Teller):
    """Lines of a log, and a few of them for a terminal."""

    def __init__(self, out: TextIO, terminal: TextIO | None) -> None:
        super().__init__(out)
        self.terminal = terminal
        self.told = self.shown = self.began

    def say(self, text: str) -> None:
        now = time.monotonic()
        if len(_within) <= 1 or now - self.told >= SILENT_S:
            self.told = now
            self.out.write(self.line(text) + "\n")
            self.out.flush()
        if self.terminal is not None and now - self.shown >= TERMINAL_S:
            self.shown = now
            with suppress(OSError):  # a terminal that was closed
                self.terminal.write(
                    f"{time.strftime('%H:%M:%S')}  {os.environ.get('FLEETPLAN_PROGRESS_OF', '')}:{self.line(text)}\n"
                )
                self.terminal.flush()

    def enter(self) -> None:
        pass

    def end(self) -> None:
        if self.terminal is not None:
            with suppress(OSError):
                self.terminal.close()

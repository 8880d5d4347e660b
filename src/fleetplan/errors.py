"""The one kind of error that a user's input can cause; the command line prints it and exits with 2."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any


class InputError(Exception):
    """Something that the user gave is wrong: the message says where, what was found and what would be right.

    `lines` holds one complete sentence per fault, so that all faults of a file are told at once.
    """

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


def read_text(path: str | os.PathLike[str], needed: str) -> str:
    """The text of a UTF-8 file without its byte-order mark; InputError where there is none, with what is needed.

    >>> read_text("no-such-file.json", "a step-time model in JSON")
    Traceback (most recent call last):
        ...
    fleetplan.errors.InputError: no-such-file.json: cannot be read (No such file or directory), a step-time model in JSON is needed
    """
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        reason = str(error.strerror)
    except UnicodeDecodeError as error:
        reason = f"byte {error.start} is no UTF-8"
    except ValueError as error:  # a name that no file can have
        reason = str(error)
    raise InputError(f"{path}: cannot be read ({reason}), {needed} is needed")


def read_yaml(path: str | os.PathLike[str], needed: str) -> Any:
    """The value of a file's one YAML document (JSON is YAML too); InputError where it is none."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    text = read_text(path, needed)
    try:
        return YAML(typ="safe").load(text)
    except (YAMLError, ValueError, RecursionError) as error:
        reason = "; ".join(line.strip() for line in str(error).splitlines() if line.strip())
        raise InputError(f"{path}: is no YAML ({reason}), {needed} is needed") from None


def near_names(name: str, known: Iterable[str], most: int = 3) -> list[str]:
    """The known names that look most like `name`, nearest first; empty when none is close.

    >>> near_names("h100-smx", ["h100-sxm", "a100-sxm", "l4"])[0]
    'h100-sxm'
    """
    return difflib.get_close_matches(name.lower(), list(known), n=most, cutoff=0.5)


def unknown_name(kind: str, name: str, known: Iterable[str]) -> str:
    """One sentence for a reference to a name that is not in a catalogue, with the near ones."""
    names = sorted(known)
    near = near_names(name, names)
    hint = f"near names: {', '.join(near)}" if near else f"known: {', '.join(names)}"
    return f"unknown {kind} (got {name!r}); {hint}"

"""The one form of traffic: flat arrays, one row a request, sorted by arrival."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Requests:
    """n requests in order of (arrival, row); every array has shape (n,) but for the ragged block hashes.

    Built by `Requests.of`, which checks and fills what is left out.
    """

    arrival_s: Floats
    """Time of arrival [s] from the start of the run; for a later turn of a session, see `gap_s`."""
    prompt_tokens: Ints
    """Prompt length [tokens], at least 1."""
    output_tokens: Ints
    """Tokens generated [tokens], at least 1, hidden (reasoning) ones included."""
    class_index: Ints
    """Index into `classes`."""
    priority: Ints
    """Priority, 0 the most urgent."""
    timeout_s: Floats
    """Time after arrival [s] at which a request that has no first token yet gives up; inf: never."""
    prefix_id: Ints
    """Shared prefix that the prompt begins with; -1: none."""
    prefix_tokens: Ints
    """Length of that shared prefix [tokens]."""
    session_id: Ints
    """Session that the request is a turn of; -1: none. A turn's prompt begins with the whole turn before it."""
    gap_s: Floats
    """Think time [s] between the finish of the session's turn before and this arrival; NaN: `arrival_s` is fixed."""
    answers: Ints
    """Parallel samples of one prompt, at least 1."""
    adapter_id: Ints
    """LoRA adapter; -1: none."""
    hidden_tokens: Ints
    """Tokens generated before the first visible one (reasoning) [tokens]."""
    block_offsets: Ints
    """Shape (n + 1,): request i owns block_hashes[block_offsets[i]:block_offsets[i + 1]]; all 0 where no hashes are known."""
    block_hashes: Ints
    """Content hashes of the prompt's blocks of `hash_block_tokens` tokens, in order."""
    history_tokens: Ints
    """Tokens at the prompt's beginning that are the session's turn before; -1: that whole turn; 0: nothing (a closed loop's user)."""
    hash_block_tokens: int
    """Tokens of one hashed block; 0 where no hashes are known."""
    classes: tuple[str, ...]
    """Names of the traffic classes."""

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def generated_tokens(self) -> Ints:
        """Tokens that each request makes the model generate: those of all its answers."""
        return self.output_tokens * self.answers

    @classmethod
    def of(
        cls,
        arrival_s: ArrayLike,
        prompt_tokens: ArrayLike,
        output_tokens: ArrayLike,
        *,
        classes: tuple[str, ...] = ("all",),
        hash_block_tokens: int = 0,
        **optional: Any,
    ) -> Requests:
        """Requests from arrays or scalars (broadcast to the arrivals' shape), sorted by (arrival, row).

        Raises ValueError when a length is below 1, an arrival is not finite, a value is out of its range, or shapes differ.

        >>> r = Requests.of([1.0, 0.5], 100, [5, 6])
        >>> r.arrival_s.tolist(), r.output_tokens.tolist()
        ([0.5, 1.0], [6, 5])
        """
        arrival = np.atleast_1d(np.asarray(arrival_s, dtype=np.float64))
        n = len(arrival)
        defaults: dict[str, Any] = {
            "class_index": 0, "priority": 0, "timeout_s": np.inf, "prefix_id": -1, "prefix_tokens": 0,
            "session_id": -1, "gap_s": np.nan, "answers": 1, "adapter_id": -1, "hidden_tokens": 0, "history_tokens": -1,
        }  # fmt: skip
        offsets = optional.pop("block_offsets", None)
        hashes = optional.pop("block_hashes", None)
        unknown = set(optional) - set(defaults)
        if unknown:
            raise ValueError(f"unknown fields {sorted(unknown)}; known: {sorted(defaults)}")
        given = {**defaults, **optional, "prompt_tokens": prompt_tokens, "output_tokens": output_tokens}
        columns: dict[str, Any] = {
            name: np.ascontiguousarray(
                np.broadcast_to(np.asarray(value), (n,)),
                dtype=np.float64 if name.endswith("_s") else np.int64,
            )
            for name, value in given.items()
        }
        for name in ("prompt_tokens", "output_tokens", "answers"):
            if n and columns[name].min() < 1:
                raise ValueError(f"{name} must be at least 1 (row {int(columns[name].argmin())})")
        if not np.isfinite(arrival).all():
            raise ValueError("arrival_s must be finite")
        _check_ranges(columns, len(classes))
        order = np.argsort(arrival, kind="stable")
        columns = {name: np.ascontiguousarray(column[order]) for name, column in columns.items()}
        if offsets is None:
            offsets, hashes = np.zeros(n + 1, dtype=np.int64), np.zeros(0, dtype=np.int64)
        else:
            offsets, hashes = np.asarray(offsets, dtype=np.int64), np.asarray(hashes, dtype=np.int64)
            if len(offsets) != n + 1:
                raise ValueError("block_offsets must have one more entry than there are requests")
            if offsets[0] < 0 or (np.diff(offsets) < 0).any() or offsets[-1] > len(hashes):
                raise ValueError(f"block_offsets must rise from 0 to at most the {len(hashes)} block_hashes")
            if offsets[-1] > offsets[0] and hash_block_tokens < 1:
                raise ValueError(
                    f"hash_block_tokens must be at least 1 where there are hashes (got {hash_block_tokens})"
                )
            if not np.array_equal(order, np.arange(n)):
                lengths = np.diff(offsets)[order]
                take = np.concatenate([np.arange(offsets[i], offsets[i + 1]) for i in order] or [hashes[:0]])
                hashes = hashes[take.astype(np.int64)]
                offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return cls(
            arrival_s=np.ascontiguousarray(arrival[order]),
            block_offsets=offsets,
            block_hashes=hashes,
            hash_block_tokens=hash_block_tokens,
            classes=classes,
            **columns,
        )

    def take(self, rows: ArrayLike) -> Requests:
        """The requests of these row indices or of this mask, in order, class names kept."""
        index = np.arange(len(self))[np.asarray(rows)]
        ragged = {"block_offsets", "block_hashes", "hash_block_tokens", "classes"}
        columns = {f.name: getattr(self, f.name)[index] for f in fields(self) if f.name not in ragged}
        lengths = np.diff(self.block_offsets)[index]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        owner = np.repeat(np.arange(len(index)), lengths)
        source = self.block_offsets[index][owner] + (np.arange(offsets[-1]) - offsets[owner])
        return Requests.of(
            block_offsets=offsets,
            block_hashes=self.block_hashes[source],
            hash_block_tokens=self.hash_block_tokens,
            classes=self.classes,
            **columns,
        )


def _check_ranges(columns: dict[str, Any], classes: int) -> None:
    """Raise ValueError with the first row whose value cannot be: the engine's arrays are indexed by some of them."""
    least = dict.fromkeys(("class_index", "priority", "prefix_tokens", "hidden_tokens"), 0)
    least |= dict.fromkeys(("prefix_id", "session_id", "adapter_id", "history_tokens"), -1)
    for name, low in least.items():
        column = columns[name]
        if len(column) and column.min() < low:
            row = int(column.argmin())
            raise ValueError(f"{name} must be at least {low} (got {column[row]} in row {row})")
    index = columns["class_index"]
    if len(index) and index.max() >= classes:
        row = int(index.argmax())
        raise ValueError(f"class_index must be below the {classes} classes (got {index[row]} in row {row})")
    timeout, gap = columns["timeout_s"], columns["gap_s"]
    wrong = ~(timeout >= 0)
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(f"timeout_s must be at least 0, or inf for never (got {timeout[row]} in row {row})")
    wrong = (gap < 0) | np.isinf(gap)
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(
            f"gap_s must be finite and at least 0, or NaN where arrival_s is fixed (got {gap[row]} in row {row})"
        )

"""Symmetric integer quantisation of a weight matrix, and the error that it makes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Quantised:
    """Integers and the scale of each, broadcast to the matrix's shape."""

    integers: NDArray[np.int32]
    scale: Floats

    def restored(self) -> Floats:
        """The values that a product sees: integer · scale."""
        return self.integers * self.scale


def quantise(weights: ArrayLike, bits: int = 8, per: str = "channel", group: int = 128) -> Quantised:
    """Round a matrix [out, in] to integers of `bits` with one scale per "tensor", "channel" (row) or "group" of a row.

    scale = max|w| / (2^(bits-1) - 1); integer = round(w / scale), so |w - restored| ≤ scale/2 everywhere.
    Raises ValueError for another `per`, bits outside 2..16, or a group that does not divide the row.

    >>> q = quantise([[1.0, -0.5], [100.0, 0.0]], per="channel")
    >>> q.integers.tolist()
    [[127, -64], [127, 0]]
    """
    w = np.asarray(weights, dtype=np.float64)
    if w.ndim != 2 or not w.size or not np.isfinite(w).all():
        raise ValueError(f"a matrix of finite numbers is needed (got shape {w.shape})")
    if not 2 <= bits <= 16:
        raise ValueError(f"bits are 2 to 16 (got {bits})")
    columns = w.shape[1]
    if per == "tensor":
        blocks = w.reshape(1, -1)
    elif per == "channel":
        blocks = w
    elif per == "group":
        if group < 1 or columns % group:
            raise ValueError(f"a group divides the row of {columns} (got {group})")
        blocks = w.reshape(-1, group)
    else:
        raise ValueError(f"per is tensor, channel or group (got {per!r})")
    largest = 2 ** (bits - 1) - 1
    scale = np.abs(blocks).max(axis=1, keepdims=True) / largest
    # A block of zeros (or of numbers too small to divide) keeps any scale: its integers are 0.
    scale = np.where(scale > 0, scale, 1.0)
    scales = np.broadcast_to(scale, blocks.shape).reshape(w.shape)
    integers = np.clip(np.rint(w / scales), -largest, largest).astype(np.int32)
    return Quantised(integers, np.array(scales))


def error(weights: ArrayLike, bits: int = 8, per: str = "channel", group: int = 128) -> Floats:
    """|w - restored| of every weight, same shape; never above half its scale."""
    return np.abs(np.asarray(weights, dtype=np.float64) - quantise(weights, bits, per, group).restored())


def bits_per_weight(bits: int, group: int, scale_bits: int = 16) -> float:
    """Bits stored a weight: bits + scale_bits / group.

    >>> bits_per_weight(4, 128), bits_per_weight(4, 16, 8), bits_per_weight(4, 32, 8)
    (4.125, 4.5, 4.25)
    """
    return bits + scale_bits / group

"""Arithmetic intensity: FLOP per byte moved, and the batch at which decoding turns from memory-bound to compute-bound."""

from __future__ import annotations


def ridge_flop_per_byte(flop_per_s: float, bandwidth_bytes_per_s: float) -> float:
    """Intensity at which T_math = T_mem: F/BW.

    >>> round(ridge_flop_per_byte(989e12, 3.35e12), 1)
    295.2
    """
    return flop_per_s / bandwidth_bytes_per_s


def decode_ridge_batch(ridge: float, bytes_per_weight: float) -> float:
    """Batch at which a decode step's products take as long as reading the weights: 2·B FLOP per `bytes_per_weight` bytes.

    >>> decode_ridge_batch(156.0, 1.0)
    78.0
    """
    return ridge * bytes_per_weight / 2


def matmul_intensity(
    tokens: int, inputs: int, outputs: int, weight_bytes: float = 2.0, activation_bytes: float = 2.0
) -> float:
    """FLOP per byte of a product (tokens, inputs) · (inputs, outputs): weights, input and output each moved once.

    >>> round(matmul_intensity(1, 5120, 5120), 4)
    0.9996
    """
    flop = 2.0 * tokens * inputs * outputs
    moved = weight_bytes * inputs * outputs + activation_bytes * tokens * (inputs + outputs)
    return flop / moved


def decode_attention_intensity(n_heads: int, n_kv_heads: int, kv_bytes: float = 2.0) -> float:
    """FLOP per byte of decode attention, whatever the batch and context: 4·n_h·d_h over 2·n_kv·d_h·b.

    >>> decode_attention_intensity(32, 32), decode_attention_intensity(64, 8)
    (1.0, 8.0)
    """
    return 4.0 * n_heads / (2.0 * n_kv_heads * kv_bytes)

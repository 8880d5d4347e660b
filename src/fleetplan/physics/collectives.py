"""The time of collectives between the GPUs of a replica: α–β by link, number of GPUs and engine."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fleetplan.physics.form import Floats

# Latency α [s] of an all-reduce in one node by the GPUs that take part, median of published kernel tables (aiconfigurator-core 0.12.0, data/<gpu>/comm):
# TensorRT-LLM 1.3 and SGLang 0.5 one-shot kernels alike, vLLM 0.24 about 1.5 times those.
_ALPHA_S = {2: 4.1e-6, 4: 4.8e-6, 8: 5.6e-6, 16: 20e-6}
_ALPHA_ACROSS_NODES_S = 30e-6
# Latency [s] of a send from one GPU to another (the same package's system descriptions, p2p_latency).
_SEND_ALPHA_S = 10e-6
_ENGINE_ALPHA = {"vllm": 1.5}
# Share of one direction of the link that the bus bandwidth reaches, by link and degree (same tables: NVLink 0.58–0.80; PCIe falls steeply as all share the root).
_BUS_SHARE = {
    "nvlink": {2: 0.60, 4: 0.62, 8: 0.70},
    "infinity_fabric": {2: 0.15, 4: 0.40, 8: 0.60},
    "pcie": {2: 0.58, 4: 0.20, 8: 0.07},
}


def all_reduce_s(
    bytes_: ArrayLike, gpus: int, link: str, link_bytes_per_s: float, engine: str = "", nodes: int = 1
) -> Floats:
    """Time [s] of an all-reduce of `bytes_` [bytes] a GPU over `gpus` GPUs: α + 2(g − 1)/g·bytes/(share·link).

    `link_bytes_per_s` is one direction of one GPU's link; across nodes pass the network's. One GPU takes no time.

    >>> round(float(all_reduce_s(64 * 2**20, 8, "nvlink", 450e9)) * 1e6)
    378
    """
    size = np.asarray(bytes_, dtype=np.float64)
    if gpus <= 1:
        return np.zeros_like(size)
    return alpha_s(gpus, engine, nodes) + 2 * (gpus - 1) / gpus * size / bus_bytes_per_s(
        gpus, link, link_bytes_per_s
    )


def all_to_all_s(
    bytes_: ArrayLike, gpus: int, link: str, link_bytes_per_s: float, engine: str = "", nodes: int = 1
) -> Floats:
    """Time [s] of an all-to-all in which each GPU holds `bytes_` [bytes] and sends (g − 1)/g of it; α is twice an all-reduce's."""
    size = np.asarray(bytes_, dtype=np.float64)
    if gpus <= 1:
        return np.zeros_like(size)
    return 2 * alpha_s(gpus, engine, nodes) + (gpus - 1) / gpus * size / bus_bytes_per_s(
        gpus, link, link_bytes_per_s
    )


def send_s(bytes_: ArrayLike, link: str, link_bytes_per_s: float) -> Floats:
    """Time [s] of a send of `bytes_` [bytes] from one GPU to another: 10 µs + bytes/(share·link); `network` is taken whole.

    >>> round(float(send_s(8192 * 8192 * 2, "network", 50e9)) * 1e6)
    2694
    """
    share = 1.0 if link == "network" else bus_bytes_per_s(2, link, 1.0)
    return _SEND_ALPHA_S + np.asarray(bytes_, dtype=np.float64) / (share * link_bytes_per_s)


def alpha_s(gpus: int, engine: str = "", nodes: int = 1) -> float:
    """Latency [s] of an all-reduce over `gpus` GPUs."""
    if nodes > 1:
        return _ALPHA_ACROSS_NODES_S
    known = sorted(_ALPHA_S)
    return float(np.interp(gpus, known, [_ALPHA_S[g] for g in known])) * _ENGINE_ALPHA.get(engine, 1.0)


def bus_bytes_per_s(gpus: int, link: str, link_bytes_per_s: float) -> float:
    """Bus bandwidth [bytes/s] that a collective over `gpus` GPUs reaches on this kind of link."""
    shares = _BUS_SHARE.get(link, _BUS_SHARE["pcie"])
    known = sorted(shares)
    return link_bytes_per_s * float(np.interp(gpus, known, [shares[g] for g in known]))

"""Where the GPUs of a replica stand: GPUs that one fast link joins, and the network between nodes."""

from __future__ import annotations

from dataclasses import dataclass

from fleetplan.catalog import Gpu
from fleetplan.errors import InputError
from fleetplan.physics.work import Layout


@dataclass(frozen=True)
class Nodes:
    """Nodes of so many GPUs each."""

    gpus: int
    """GPUs that the fast link joins."""
    network_bytes_per_s: float | None
    """Bandwidth of one GPU to GPUs of other nodes, one direction [B/s]; None: not known."""

    def network(self, gpu: Gpu, layout: Layout) -> float:
        """That bandwidth for a replica that needs it. Raises InputError where it is not known."""
        if self.network_bytes_per_s is None:
            raise InputError(
                f"a replica of {layout.gpus} GPUs spans nodes of {self.gpus} {gpu.name}, whose network the catalogue does not know: "
                "state it by candidates.network, like network: 50 GB/s for one GPU"
            )
        return self.network_bytes_per_s


def nodes_of(gpu: Gpu, gpus: int | None = None, network_bytes_per_s: float | None = None) -> Nodes:
    """The nodes of the catalogue, or with another size or network as stated."""
    return Nodes(
        gpus or link_domain_gpus(gpu),
        gpu.network_bytes_per_s if network_bytes_per_s is None else network_bytes_per_s,
    )


def hops(layout: Layout, nodes: Nodes) -> tuple[int, int]:
    """(sends within a node, sends from node to node) of a step: whole stages fill a node in their order, a larger stage fills several.

    >>> from fleetplan.physics.work import Layout
    >>> hops(Layout(4, 2), Nodes(8, None)), hops(Layout(8, 2), Nodes(8, None)), hops(Layout(4, 4), Nodes(8, None))
    ((1, 0), (0, 1), (2, 1))
    """
    stages, together = layout.pipeline_parallel, max(nodes.gpus // layout.stage_gpus, 1)
    across = -(-stages // together) - 1
    return stages - 1 - across, across


def link_kind(gpu: Gpu) -> str:
    """nvlink, infinity_fabric or pcie, by what the vendor calls it."""
    name = gpu.link.kind.lower()
    if "nvlink" in name and gpu.link.switched:
        return "nvlink"
    return "infinity_fabric" if "infinity" in name or "ici" in name or "roce" in name else "pcie"


def link_domain_gpus(gpu: Gpu) -> int:
    """GPUs that one NVLink domain joins: the node's, or 72 in a rack of GB200 or GB300."""
    return 72 if gpu.name.startswith(("gb200", "gb300", "vr200")) else gpu.gpus_per_node

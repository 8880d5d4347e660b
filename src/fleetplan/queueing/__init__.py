"""Closed forms of queueing: instant answers that teach, bound the search and check the simulator."""

from fleetplan.queueing.batching import BatchingResult, continuous_batching
from fleetplan.queueing.endpoint import EndpointSize, size_endpoint
from fleetplan.queueing.multi import erlang_b, erlang_c, ggc, loss_system, mdc, mmc, mmc_abandon, mmck
from fleetplan.queueing.result import QueueResult
from fleetplan.queueing.single import PriorityClass, md1, mg1, mm1, priority_mg1

__all__ = [
    "BatchingResult",
    "EndpointSize",
    "PriorityClass",
    "QueueResult",
    "continuous_batching",
    "erlang_b",
    "erlang_c",
    "ggc",
    "loss_system",
    "md1",
    "mdc",
    "mg1",
    "mm1",
    "mmc",
    "mmc_abandon",
    "mmck",
    "priority_mg1",
    "size_endpoint",
]

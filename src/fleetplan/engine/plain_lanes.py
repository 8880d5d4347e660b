"""The plain twin of pipelines: every step of every lane, one at a time, in readable Python."""

from __future__ import annotations

import heapq
import math
from dataclasses import replace
from typing import Any

from fleetplan.engine.config import NANOSECOND, EngineConfig
from fleetplan.engine.lanes import of_a_lane
from fleetplan.engine.load import ClosedLoop, Outage
from fleetplan.engine.outcome import UNFINISHED
from fleetplan.engine.plain import BEGIN, Plain
from fleetplan.engine.plain_cost import scalar_cost
from fleetplan.engine.plain_schedulers import Offer
from fleetplan.engine.plain_sequence import Replica, Sequence
from fleetplan.physics.steptime import StepTime
from fleetplan.traffic.requests import Requests


class Home(Replica):
    """A replica that is a pipeline: its lanes share its queue and its blocks."""

    def __init__(self, replica: Replica, lanes: int) -> None:
        super().__init__(replica.index, replica.waiting, replica.free_blocks)
        self.gate_s = -math.inf
        """When the longest stage is free of the step that started last."""
        self.starts = 0
        self.lanes = [Lane(self, number) for number in range(lanes)]


def _of_home(name: str) -> Any:
    return property(
        lambda lane: getattr(lane.home, name), lambda lane, value: setattr(lane.home, name, value)
    )


class Lane(Replica):
    """One of the steps in flight: a running set of its own, on the queue and the blocks of its home."""

    free_blocks = _of_home("free_blocks")
    outstanding = _of_home("outstanding")
    steps = _of_home("steps")

    def __init__(self, home: Home, number: int) -> None:
        self.home = home
        self.number = number
        self.turn = 0
        """Number of its last start among those of its home."""
        self.ready_s = math.inf
        """Since when it has something to look at; infinite: nothing."""
        super().__init__(home.index, home.waiting, home.free_blocks)

    @property
    def blocks(self) -> int:
        """Blocks that its sequences hold."""
        return sum(s.blocks for s in self.running)


class PlainLanes(Plain):
    """A fleet of like pipelines behind a router."""

    def __init__(
        self,
        requests: Requests,
        steptime: StepTime,
        config: EngineConfig,
        replicas: int,
        router: str,
        seed: int,
        until_s: float = math.inf,
        closed_loop: ClosedLoop | None = None,
        outages: tuple[Outage, ...] = (),
    ) -> None:
        stages = steptime.stages
        super().__init__(
            requests,
            steptime,
            of_a_lane(config, stages),
            replicas,
            router,
            seed,
            until_s,
            closed_loop,
            outages,
        )
        self.stages = stages
        self.stage_cost = scalar_cost(steptime.beat)
        self.homes = [Home(replica, stages) for replica in self.replicas]
        self.replicas = list(self.homes)

    def ticket(self, replica: Replica) -> int:
        assert isinstance(replica, Lane)
        lanes = len(self.homes) * self.stages
        return replica.index * self.stages + replica.number + replica.home.incarnation * lanes

    def end(self, ticket: int) -> None:
        at = ticket % (len(self.homes) * self.stages)
        lane = self.homes[at // self.stages].lanes[at % self.stages]
        if ticket == self.ticket(lane):
            self.commit(lane)

    def wake_all(self, replica: Replica, now_s: float) -> None:
        self.wake(replica, now_s)

    def wake(self, replica: Replica, now_s: float) -> None:
        """Something has changed at a replica: every lane of it that is not in flight looks, in turn, whether it has something to do."""
        home = replica.home if isinstance(replica, Lane) else replica
        assert isinstance(home, Home)
        for lane in home.lanes:
            idle = lane.step_end_s == math.inf and lane.ready_s == math.inf
            if idle and (lane.running or home.waiting):
                lane.ready_s = max(now_s, lane.free_at_s)
        self.expect_start(home)

    def expect_start(self, home: Home) -> None:
        """The replica's next step starts when a lane is ready and the longest stage is free."""
        begin_at_s = max(min(lane.ready_s for lane in home.lanes), home.gate_s)
        if begin_at_s != home.begin_at_s:
            home.begin_at_s = begin_at_s
            if begin_at_s < math.inf:
                heapq.heappush(self.events, (begin_at_s + NANOSECOND, BEGIN, home.index))

    def start(self, replica: Replica, key_s: float) -> None:
        """Of the lanes that are free now the one that started longest ago forms a step, or gives up its turn."""
        home = replica
        assert isinstance(home, Home)
        home.begin_at_s = math.inf
        free = [lane for lane in home.lanes if lane.ready_s <= key_s]
        lane = min(free, key=lambda lane: (lane.turn, lane.number))
        lane.begin_at_s, lane.ready_s = max(lane.ready_s, home.gate_s), math.inf
        before = len(lane.running)
        if before:
            self.spans.append((lane.free_at_s, lane.begin_at_s, lane.width, self.held(lane)))
        self.begin(lane)
        if lane.scheduled:
            home.starts += 1
            lane.turn = home.starts
            stage_s = self.stage_cost(*lane.work)
            home.busy_s += stage_s
            home.gate_s = lane.begun_at_s + stage_s
        if lane.scheduled or len(lane.running) != before:
            self.wake(lane, lane.begun_at_s)
        else:
            self.expect_start(home)

    def offer(self, replica: Replica, left: float, whole_life: bool = False) -> Offer:
        """One that was preempted comes back where there is room for all that it knows, else lanes could preempt each other for ever."""
        offer = super().offer(replica, left, whole_life)
        s = replica.waiting[0]
        if (
            self.stages > 1
            and s.preemptions
            and s.held(s.known, self.config.block_size) > replica.free_blocks
        ):
            return replace(offer, taken=math.nan)
        return offer

    def held(self, lane: Lane) -> int:
        """Blocks of a lane, where they are counted."""
        return 0 if self.config.kv_blocks is None else lane.blocks

    def count_time(self, replica: Replica, now_s: float) -> None:
        assert isinstance(replica, Lane)
        self.spans.append((replica.begun_at_s, now_s, replica.width, self.held(replica)))

    def break_off(self, replica: Replica, now_s: float) -> None:
        assert isinstance(replica, Home)
        replica.busy_s -= max(replica.gate_s - now_s, 0.0)
        for lane in replica.lanes:
            if lane.step_end_s < math.inf:
                self.count_time(lane, now_s)
            elif lane.running:
                self.spans.append((lane.free_at_s, now_s, lane.width, self.held(lane)))

    def lose(self, replica: Replica, now_s: float) -> list[Sequence]:
        assert isinstance(replica, Home)
        running = [s for lane in replica.lanes for s in lane.running if s.outcome == UNFINISHED]
        lost = running + super().lose(replica, now_s)
        replica.gate_s = -math.inf
        for lane in replica.lanes:
            lane.running, lane.scheduled = [], []
            lane.step_end_s = lane.ready_s = math.inf
            lane.free_at_s = now_s
        return lost

    def check_blocks(self, replica: Replica) -> None:
        """What all lanes hold and what is free is all there is."""
        assert isinstance(replica, Lane)
        home = replica.home
        if self.config.kv_blocks is not None:
            assert home.free_blocks + sum(lane.blocks for lane in home.lanes) == self.config.kv_blocks
            assert home.free_blocks >= 0

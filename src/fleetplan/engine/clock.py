"""Compiled: the time of a step, of a stretch of decode-only steps in closed form, and the histogram of their lengths."""

from __future__ import annotations

import math
from typing import Any

from numba import types
from numba.extending import intrinsic

from fleetplan.engine.config import NANOSECOND
from fleetplan.engine.histogram import BINS, BITS, LOWEST_EXPONENT
from fleetplan.engine.jit import compiled, inlined
from fleetplan.engine.state import State

FIRST_BIN = (LOWEST_EXPONENT + 1023) << BITS
FOREVER = 1 << 60


@intrinsic
def _bits(typing_context: Any, x: Any) -> Any:
    """The 64 bits of a float as an integer."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(types.int64))

    return types.int64(types.float64), codegen


@intrinsic
def _float(typing_context: Any, x: Any) -> Any:
    """The float of 64 bits."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(types.float64))

    return types.float64(types.int64), codegen


@inlined
def at(st: State, vector: Any, slope: float, n: int) -> float:
    """Entry n of a step-time vector, which goes on with its slope; a NaN slope is a fault, told after the run."""
    end = len(vector) - 1
    if n <= end:
        return vector[n]
    if math.isnan(slope):
        st.p[0].fault_tokens = max(st.p[0].fault_tokens, n)
        return vector[end]
    return vector[end] + (n - end) * slope


@inlined
def step_s(st: State) -> float:
    """dt = O[n] + σB + δD + max(C[n] + cX + c_w·X_w, M[n] + mR + m_w·R_w + m_s·B) of the step that `work` sums up."""
    p, w = st.p[0], st.work[0]
    n, b, d = w.tokens, w.sequences, w.decoding
    compute = at(st, st.compute, p.compute_slope_s, n) + p.pair_s * w.pairs + p.window_pair_s * w.window_pairs
    memory = (
        at(st, st.memory, p.memory_slope_s, n)
        + p.kv_token_s * w.kv_read
        + p.window_kv_token_s * w.window_read
        + p.state_s * b
    )
    hidden = at(st, st.overhead, p.overhead_slope_s, n)
    return hidden + p.sequence_s * b + p.decode_s * d + max(compute, memory)


@inlined
def set_stretch(st: State, r: int, b: int) -> None:
    """The two linear pieces of decode-only steps of b slots: step i lasts hidden + max(compute, memory) at R + i·growing."""
    p, rec = st.p[0], st.replica[r]
    compute = (
        at(st, st.compute, p.compute_slope_s, b) + p.pair_s * rec.kv_read + p.window_pair_s * rec.window_read
    )
    memory = (
        at(st, st.memory, p.memory_slope_s, b)
        + p.kv_token_s * rec.kv_read
        + p.window_kv_token_s * rec.window_read
        + p.state_s * b
    )
    compute_slope = p.pair_s * rec.growing + p.window_pair_s * rec.window_growing
    memory_slope = p.kv_token_s * rec.growing + p.window_kv_token_s * rec.window_growing
    rec.hidden_s = at(st, st.overhead, p.overhead_slope_s, b) + p.sequence_s * b + p.decode_s * b
    if compute > memory or (compute == memory and compute_slope >= memory_slope):
        rec.lead_s, rec.lead_slope_s, rec.tail_s, rec.tail_slope_s = (
            compute,
            compute_slope,
            memory,
            memory_slope,
        )
    else:
        rec.lead_s, rec.lead_slope_s, rec.tail_s, rec.tail_slope_s = (
            memory,
            memory_slope,
            compute,
            compute_slope,
        )
    rec.turn = FOREVER
    if rec.tail_slope_s > rec.lead_slope_s:
        turn = math.ceil((rec.lead_s - rec.tail_s) / (rec.tail_slope_s - rec.lead_slope_s))
        if turn < FOREVER:
            rec.turn = int(turn)


@inlined
def stretch_s(rec: Any, j: int) -> float:
    """Time [s] of the first j steps of the stretch."""
    k = min(j, rec.turn)
    total = k * (rec.hidden_s + rec.lead_s) + rec.lead_slope_s * (0.5 * k * (k - 1))
    if j > k:
        total += (j - k) * (rec.hidden_s + rec.tail_s) + rec.tail_slope_s * (0.5 * (j + k - 1) * (j - k))
    return total


@compiled
def steps_before(rec: Any, when_s: float, most: int) -> int:
    """Steps of the stretch until its first boundary, not the start, that a thing of this time [s] may join; at most `most`."""
    need = when_s - NANOSECOND - rec.now_s
    if rec.now_s + stretch_s(rec, most) + NANOSECOND < when_s:
        return most
    base, first = 0.0, 0
    level, slope = rec.hidden_s + rec.lead_s, rec.lead_slope_s
    if rec.turn < most:
        at_turn = stretch_s(rec, rec.turn)
        if at_turn < need:
            base, first = at_turn, rec.turn
            level, slope = rec.hidden_s + rec.tail_s + rec.tail_slope_s * first, rec.tail_slope_s
    linear = level - 0.5 * slope
    rest = max(need - base, 0.0)
    root = linear + math.sqrt(max(linear * linear + 2.0 * slope * rest, 0.0))
    guess = first + (2.0 * rest / root if root > 0.0 else 0.0)
    j = min(max(int(guess), 1), most)
    while j > 1 and rec.now_s + stretch_s(rec, j - 1) + NANOSECOND >= when_s:
        j -= 1
    while j < most and rec.now_s + stretch_s(rec, j) + NANOSECOND < when_s:
        j += 1
    return j


@inlined
def bin_index(value_s: float) -> int:
    """Bin of a time [s]: exponent and leading mantissa bits."""
    index = (_bits(value_s) >> (52 - BITS)) - FIRST_BIN  # type: ignore[call-arg]
    return min(max(index, 0), BINS - 1)


@inlined
def add_gap(st: State, k: int, value_s: float, weight: float) -> None:
    """`weight` gaps of class k of this length."""
    index = bin_index(value_s)
    st.gaps[k, index].weight += weight
    st.gaps[k, index].weighted_s += weight * value_s


@inlined
def add_gaps(st: State, r: int, value_s: float) -> None:
    """One gap of this length for every growing sequence of the replica."""
    if st.p[0].classes == 1:
        add_gap(st, 0, value_s, st.replica[r].growing)
        return
    for k in range(st.p[0].classes):
        if st.by_class[r, k]:
            add_gap(st, k, value_s, st.by_class[r, k])


@compiled
def _add_line(st: State, r: int, level_s: float, slope_s: float, start: int, stop: int) -> None:
    """Gaps level + slope·i, i from start to stop, for every growing sequence: bin by bin where bins are fewer than steps."""
    i = start
    steps_per_s = 1.0 / slope_s if slope_s > 0.0 else 0.0
    while i < stop:
        value = level_s + slope_s * i
        index = bin_index(value)
        if slope_s <= 0.0:
            end = stop
        else:
            edge: float = _float((index + FIRST_BIN + 1) << (52 - BITS))  # type: ignore[call-arg]
            reach = (edge - level_s) * steps_per_s
            end = stop if reach >= stop else max(math.ceil(reach), i + 1)
        count = end - i
        total = count * level_s + slope_s * (0.5 * (end + i - 1) * count)
        for k in range(st.p[0].classes):
            alike = st.by_class[r, k]
            if alike:
                st.gaps[k, index].weight += count * alike
                st.gaps[k, index].weighted_s += total * alike
        i = end


@compiled
def add_stretch(st: State, r: int, start: int, stop: int) -> None:
    """The gaps of steps start..stop of the stretch."""
    rec = st.replica[r]
    turn = min(max(rec.turn, start), stop)
    _add_line(st, r, rec.hidden_s + rec.lead_s, rec.lead_slope_s, start, turn)
    _add_line(st, r, rec.hidden_s + rec.tail_s, rec.tail_slope_s, turn, stop)


@inlined
def window_pairs(cached: int, new: int, window: int) -> int:
    """Query-key pairs of `new` tokens after `cached` ones, each context cut at the window."""
    growing = min(max(window - cached, 0), new)
    return growing * cached + growing * (growing + 1) // 2 + (new - growing) * window

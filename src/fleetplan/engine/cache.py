"""Compiled: the prefix cache of one replica: segments of blocks, held by running sequences or kept until their room is needed.

A segment is a run of whole blocks after those of its parent. Segments are a request's own (number i), the upper part of one that
request i split where its history ends (n + i), and a replica's copies of the common nodes. Whoever runs holds every segment from its
own to the root, whole. What nobody holds is in the list of the tier where it lies, the least recently released first, a tail
before its head; the cached part of a path is therefore always its beginning, in HBM before host before disk.
"""

from __future__ import annotations

from fleetplan.engine.blocks import known
from fleetplan.engine.jit import compiled, inlined
from fleetplan.engine.outcome import UNFINISHED
from fleetplan.engine.state import PREFILL_FIRST, State

HBM, HOST, DISK = 0, 1, 2


@inlined
def cached(st: State, s: int) -> int:
    """Blocks of segment s in any tier."""
    return st.kept[s, HBM] + st.kept[s, HOST] + st.kept[s, DISK]


@compiled
def _link_last(st: State, r: int, level: int, s: int) -> None:
    tier = st.tier[r, level]
    st.older[s, level] = tier.last
    st.newer[s, level] = -1
    if tier.last >= 0:
        st.newer[tier.last, level] = s
    else:
        tier.first = s
    tier.last = s


@compiled
def _link_after(st: State, r: int, level: int, s: int, behind: int) -> None:
    """Segment s becomes the next to go after `behind`."""
    tier = st.tier[r, level]
    after = st.newer[behind, level]
    st.older[s, level] = behind
    st.newer[s, level] = after
    st.newer[behind, level] = s
    if after >= 0:
        st.older[after, level] = s
    else:
        tier.last = s


@compiled
def _unlink(st: State, r: int, level: int, s: int) -> None:
    tier = st.tier[r, level]
    before, after = st.older[s, level], st.newer[s, level]
    if before >= 0:
        st.newer[before, level] = after
    else:
        tier.first = after
    if after >= 0:
        st.older[after, level] = before
    else:
        tier.last = before


@compiled
def _take(st: State, r: int, level: int, s: int, blocks: int) -> None:
    st.kept[s, level] -= blocks
    st.tier[r, level].held -= blocks
    if st.kept[s, level] == 0:
        _unlink(st, r, level, s)


@compiled
def _put(st: State, r: int, level: int, s: int, blocks: int) -> None:
    if st.kept[s, level] == 0:
        _link_last(st, r, level, s)
    st.kept[s, level] += blocks
    st.tier[r, level].held += blocks


@inlined
def evict_to(st: State, r: int, room: int) -> None:
    """At most `room` blocks stay cached in HBM that nobody holds; the least recent move to the host, from there to the disk, or go."""
    if st.tier[r, HBM].held > room:
        _evict(st, r, room)


@compiled
def _evict(st: State, r: int, room: int) -> None:
    p, top = st.p[0], st.tier[r, HBM]
    while top.held > room:
        s = top.first
        blocks = min(st.kept[s, HBM], top.held - room)
        _take(st, r, HBM, s, blocks)
        if p.host_blocks > 0:
            _put(st, r, HOST, s, blocks)
    while st.tier[r, HOST].held > p.host_blocks:
        s = st.tier[r, HOST].first
        blocks = min(st.kept[s, HOST], st.tier[r, HOST].held - p.host_blocks)
        _take(st, r, HOST, s, blocks)
        if p.disk_blocks > 0:
            _put(st, r, DISK, s, blocks)
    while st.tier[r, DISK].held > p.disk_blocks:
        s = st.tier[r, DISK].first
        _take(st, r, DISK, s, min(st.kept[s, DISK], st.tier[r, DISK].held - p.disk_blocks))


@compiled
def _full_blocks(st: State, i: int, tokens: int) -> int:
    """Whole blocks of request i's first `tokens` that the cache may keep: of several answers none but the prompt's."""
    if st.request[i].answers > 1:
        tokens = min(tokens, st.request[i].prompt)
    return tokens // st.p[0].block_size


@compiled
def _own_blocks(st: State, r: int, i: int) -> int:
    """Whole blocks of request i's own segment, those of the step that is being planned included."""
    k = st.content[i].slot
    if k < 0:
        return cached(st, i)
    tokens = st.slot[r, k].computed
    if st.slot[r, k].due < 0:
        tokens += st.slot[r, k].chunk
    elif st.p[0].drafts > 0:
        tokens += st.replica[r].counter + st.slot[r, k].kept
    else:
        tokens += st.replica[r].counter + (0 if st.p[0].scheduler == PREFILL_FIRST else 1)
    return max(_full_blocks(st, i, tokens) - st.segment[i].start, 0)


@compiled
def _reach(st: State, r: int, i: int, most: int) -> tuple[int, int]:
    """Deepest cached segment of request i's path that is no common one, and the depth that it reaches, at most `most`; −1, 0: none."""
    s, common = i, 2 * len(st.request)
    while 0 <= s < common:
        start = st.segment[s].start
        if start < most:
            blocks = _own_blocks(st, r, i) if s == i else cached(st, s)
            if blocks > 0:
                return s, min(start + blocks, most)
        s = st.segment[s].parent
    return -1, 0


@compiled
def look(st: State, r: int, i: int) -> int:
    """Tokens of request i that the cache has: it follows itself, the latest earlier turn that ran here, or its common blocks.

    The replica's record says where the path attaches (`found`, `depth`), how many of its blocks would be taken from the free ones
    (`unpinned`) and how long those of other tiers take to come (`pull_s`).
    """
    rec, p, n = st.replica[r], st.p[0], len(st.request)
    most = (known(st, i) - 1) // p.block_size
    found, depth = -1, 0
    mine = st.content[i].seated == r
    if mine:
        found, depth = _reach(st, r, i, most)
    else:
        turn, shared = st.content[i].previous, min(st.content[i].history, most)
        while turn >= 0 and shared > 0 and st.content[turn].seated != r:
            shared = min(shared, st.content[turn].history)
            turn = st.content[turn].previous
        if turn >= 0 and shared > 0:
            found, depth = _reach(st, r, turn, shared)
    if st.content[i].leaf >= 0 and not (mine and found >= 0):
        leaf = 2 * n + r * p.nodes + st.content[i].leaf
        s, common = leaf, 0
        while s >= 0:
            if cached(st, s) > 0:
                common = st.segment[s].start + cached(st, s)
                break
            s = st.segment[s].parent
        if common >= depth:
            found, depth = leaf, common
    rec.found, rec.depth = found, depth
    rec.unpinned, rec.pull_s = 0, 0.0
    s = found
    while s >= 0 and st.segment[s].refs == 0:
        left = depth - st.segment[s].start
        near = min(st.kept[s, HBM], left)
        host = min(st.kept[s, HOST], left - near)
        disk = min(st.kept[s, DISK], left - near - host)
        if left > 0:
            rec.unpinned += near + host + disk
            rec.pull_s += host * p.host_block_s + disk * p.disk_block_s
        s = st.segment[s].parent
    return min(depth, most) * p.block_size


@compiled
def seat(st: State, r: int, k: int, tokens: int) -> None:
    """The sequence of slot k, admitted with what `look` found, holds its path; the step computes it up to this many tokens."""
    rec, n = st.replica[r], len(st.request)
    i = st.slot[r, k].row
    s, depth = rec.found, rec.depth
    if s != i:
        if 0 <= s < 2 * n:
            end = st.segment[s].start + (_own_blocks(st, r, s) if s < n else cached(st, s))
            if depth < end or (s < n and st.request[s].outcome == UNFINISHED):
                s = _split(st, r, i, s, depth)
            st.segment[i].start = depth
        else:
            st.segment[i].start = st.content[i].depth if s >= 0 else 0
        st.segment[i].parent = s
    st.content[i].slot = k
    st.content[i].seated = r
    st.content[i].acquired = depth
    rec.extra_s += rec.pull_s
    s = i
    while s >= 0:
        if st.segment[s].refs == 0:
            for level in range(3):
                blocks = st.kept[s, level]
                if blocks > 0:
                    _take(st, r, level, s, blocks)
                    st.kept[s, HBM] += blocks
        st.segment[s].refs += 1
        s = st.segment[s].parent
    fill(st, r, i, tokens)


@compiled
def _split(st: State, r: int, i: int, s: int, depth: int) -> int:
    """The blocks of segment s before `depth` become a segment of their own, which request i goes on from."""
    upper = len(st.request) + i
    if s < len(st.request) and st.content[s].slot >= 0:
        st.kept[s, HBM] = _own_blocks(st, r, s)
    st.segment[upper].parent = st.segment[s].parent
    st.segment[upper].start = st.segment[s].start
    st.segment[upper].refs = st.segment[s].refs
    left = depth - st.segment[s].start
    for level in range(3):
        blocks = min(st.kept[s, level], left)
        left -= blocks
        st.kept[upper, level] = blocks
        if blocks > 0 and st.segment[s].refs == 0:
            _link_after(st, r, level, upper, s)
            if blocks == st.kept[s, level]:
                _unlink(st, r, level, s)
        st.kept[s, level] -= blocks
    st.segment[s].parent = upper
    st.segment[s].start = depth
    return upper


@compiled
def fill(st: State, r: int, i: int, tokens: int) -> None:
    """The step computes request i up to this many tokens: its whole common blocks are there for who is admitted after it."""
    s = st.segment[i].parent
    full = tokens // st.p[0].block_size
    if s < 2 * len(st.request):
        return
    while s >= 0:
        blocks = min(full - st.segment[s].start, st.segment[s].size)
        if blocks > 0:
            if st.kept[s, HBM] >= blocks:
                return
            st.kept[s, HBM] = blocks
        s = st.segment[s].parent


@compiled
def let_go(st: State, r: int, k: int, held: int) -> None:
    """The sequence of slot k no longer runs, of whose `held` blocks the whole ones stay cached while there is room."""
    rec = st.replica[r]
    i = st.slot[r, k].row
    full = _full_blocks(st, i, st.slot[r, k].computed)
    rec.free += max(held - max(full, st.content[i].acquired), 0)
    st.kept[i, HBM] = max(full - st.segment[i].start, 0)
    s = i
    while s >= 0:
        st.segment[s].refs -= 1
        blocks = st.kept[s, HBM]
        if st.segment[s].refs == 0 and blocks > 0:
            st.kept[s, HBM] = 0
            _put(st, r, HBM, s, blocks)
            rec.free += blocks
        s = st.segment[s].parent
    st.content[i].slot = -1


@compiled
def forget(st: State, r: int) -> None:
    """A replica that comes up again has nothing cached but what its sequences hold."""
    for level in range(3):
        tier = st.tier[r, level]
        s = tier.first
        while s >= 0:
            st.kept[s, level] = 0
            s = st.newer[s, level]
        tier.first = tier.last = -1
        tier.held = 0


@compiled
def wipe(st: State, r: int) -> None:
    """A replica that went down has nothing cached, and holds nothing."""
    n, p = len(st.request), st.p[0]
    forget(st, r)
    for i in range(n):
        if st.content[i].seated == r:
            for s in (i, n + i):
                st.segment[s].refs = 0
                st.segment[s].parent = -1
                st.kept[s, HBM] = 0
            st.content[i].seated = st.content[i].slot = -1
    for s in range(2 * n + r * p.nodes, 2 * n + (r + 1) * p.nodes):
        st.segment[s].refs = 0
        st.kept[s, HBM] = 0

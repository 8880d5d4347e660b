"""What the prompts of a run have in common: shared prefixes and hashed blocks as a tree of nodes, and each session's turn before."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from fleetplan.traffic.requests import Requests

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Content:
    """Where the blocks of n requests come from, at one block size.

    A node is a run of whole blocks that several prompts may begin with, after those of its parent; a request's common
    blocks are the nodes from a root to its leaf.
    """

    leaf: Ints
    """Shape (n,): node that a prompt's common blocks end in; −1: none."""
    depth: Ints
    """Shape (n,): common blocks of the prompt."""
    previous: Ints
    """Shape (n,): the session's turn before; −1: none."""
    history: Ints
    """Shape (n,): whole blocks at the prompt's beginning that are that turn's."""
    parent: Ints
    """Shape (nodes,): −1 for a root."""
    start: Ints
    """Shape (nodes,): blocks before the node."""
    size: Ints
    """Shape (nodes,): blocks of the node."""


_KNOWN: WeakKeyDictionary[Requests, dict[int, Content]] = WeakKeyDictionary()


def content_of(requests: Requests, block_size: int) -> Content:
    """The common blocks of these requests, found once for each block size.

    A prompt's hashes name it where it has some; the last hashed block, where the prompt does not fill it, is told apart by its
    length too. A later turn without a prefix of its own has its history's.

    >>> both = Requests.of([0.0, 1.0], [40, 50], 5, prefix_id=3, prefix_tokens=[36, 20])
    >>> found = content_of(both, 16)
    >>> found.depth.tolist(), found.parent.tolist(), found.size.tolist()
    ([2, 1], [-1, 0], [1, 1])
    """
    known = _KNOWN.setdefault(requests, {})
    if block_size not in known:
        known[block_size] = _content(requests, block_size)
    return known[block_size]


def history_tokens(requests: Requests) -> tuple[Ints, Ints]:
    """The turn before of each request, −1 where there is none, and the prompt tokens that it shares with it."""
    n = len(requests)
    previous = np.full(n, -1, dtype=np.int64)
    rows = np.flatnonzero(requests.session_id >= 0)
    order = rows[np.argsort(requests.session_id[rows], kind="stable")]
    same = requests.session_id[order[1:]] == requests.session_id[order[:-1]]
    previous[order[1:][same]] = order[:-1][same]
    whole = (requests.prompt_tokens + requests.output_tokens)[previous]
    tokens = np.where(requests.history_tokens < 0, whole, requests.history_tokens)
    return previous, np.where(previous < 0, 0, np.minimum(tokens, requests.prompt_tokens))


def prefixes(requests: Requests) -> tuple[Ints, Ints]:
    """Prefix and its tokens of each prompt, those that come with a session's history among them; −1 and 0 for none."""
    known = requests.prefix_id >= 0
    names = np.where(known, requests.prefix_id, -1)
    tokens = np.where(known, np.minimum(requests.prefix_tokens, requests.prompt_tokens), 0)
    previous, history = history_tokens(requests)
    hashed = np.diff(requests.block_offsets) > 0
    heirs = np.flatnonzero((names < 0) & (history > 0) & ~hashed)
    if len(heirs) and known.any():
        names, tokens = names.copy(), tokens.copy()
        for i in heirs.tolist():  # in order of row, so that a turn before has its own already
            names[i] = names[previous[i]]
            tokens[i] = min(int(tokens[previous[i]]), int(history[i]))
    return names, tokens


def _content(requests: Requests, size: int) -> Content:
    n = len(requests)
    previous, history = history_tokens(requests)
    leaf, depth = np.full(n, -1, dtype=np.int64), np.zeros(n, dtype=np.int64)
    nodes: list[tuple[Ints, Ints, Ints]] = []
    count = 0
    hashes = np.diff(requests.block_offsets)
    names, tokens = prefixes(requests)
    rows = np.flatnonzero((names >= 0) & (tokens >= size) & (hashes == 0))
    if len(rows):
        ends = tokens[rows] // size
        pairs, inverse = np.unique(np.stack([names[rows], ends]), axis=1, return_inverse=True)
        inner = np.append(False, pairs[0, 1:] == pairs[0, :-1])
        start = np.where(inner, np.roll(pairs[1], 1), 0)
        nodes.append((np.where(inner, np.arange(len(inner)) - 1, -1), start, pairs[1] - start))
        leaf[rows], depth[rows] = inverse.reshape(-1), ends
        count = len(inner)
    width = requests.hash_block_tokens
    level, parent = 0, np.full(n, -1, dtype=np.int64)
    if width:
        hashes = np.minimum(hashes, -(-requests.prompt_tokens // width))
    while width and (rows := np.flatnonzero(hashes > level)).size:
        begin, end = level * width // size, (level + 1) * width // size
        covered = np.minimum(hashes[rows] * width, requests.prompt_tokens[rows]) // size
        until = np.minimum(end, covered)
        keys = np.stack([parent[rows], requests.block_hashes[requests.block_offsets[rows] + level], until])
        distinct, inverse = np.unique(keys, axis=1, return_inverse=True)
        nodes.append((distinct[0], np.full(distinct.shape[1], begin), distinct[2] - begin))
        parent[rows] = leaf[rows] = count + inverse.reshape(-1)
        depth[rows] = until
        count += distinct.shape[1]
        level += 1
    tree = [np.concatenate([part[k] for part in nodes] or [np.zeros(0, np.int64)]) for k in range(3)]
    return Content(leaf, depth, previous, history // size, *tree)

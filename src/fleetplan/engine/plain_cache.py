"""The plain twin's prefix cache: one entry a block, least recently released first, in HBM, on the host or on disk."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence

from fleetplan.engine.config import PrefixCache
from fleetplan.traffic.requests import Requests

Key = Hashable


class Cache:
    """Blocks of one replica by content: held by so many sequences, or kept in a tier until others need the room."""

    def __init__(self, settings: PrefixCache) -> None:
        self.room = [settings.host_blocks, settings.disk_blocks]
        self.block_s = [0.0, settings.host_block_s, settings.disk_block_s]
        self.held: dict[Key, int] = {}
        self.tiers: list[OrderedDict[Key, None]] = [OrderedDict(), OrderedDict(), OrderedDict()]

    def run(self, keys: Sequence[Key]) -> int:
        """How many of these blocks, from the first on, are there."""
        for count, key in enumerate(keys):
            if key not in self.held and not any(key in tier for tier in self.tiers):
                return count
        return len(keys)

    def unheld(self, keys: Sequence[Key]) -> int:
        """Blocks that would be taken from the free ones if these, which are there, were held."""
        return sum(key not in self.held for key in keys)

    def hold(self, key: Key) -> float:
        """One more sequence holds this block; the time [s] that it takes to come from its tier."""
        self.held[key] = self.held.get(key, 0) + 1
        for level, tier in enumerate(self.tiers):
            if key in tier:
                del tier[key]
                return self.block_s[level]
        return 0.0

    def let_go(self, keys: Sequence[Key]) -> int:
        """A sequence that held these blocks is gone, its last block the first to be evicted; how many are free for others now."""
        freed = 0
        for key in reversed(keys):
            self.held[key] -= 1
            if self.held[key] == 0:
                del self.held[key]
                self.tiers[0][key] = None
                freed += 1
        return freed

    def evict_to(self, room: float) -> None:
        """Make the unheld blocks of HBM no more than this, and those of the other tiers no more than they hold."""
        for level, most in enumerate([room, *self.room]):
            while len(self.tiers[level]) > most:
                key, _ = self.tiers[level].popitem(last=False)
                if level < 2:
                    self.tiers[level + 1][key] = None

    def forget(self) -> None:
        """Nothing is cached but what sequences hold."""
        for tier in self.tiers:
            tier.clear()


def common_keys(requests: Requests, size: int) -> list[list[Key]]:
    """For each request the contents of its first blocks that others may have too: a prefix's or hashed ones."""
    names, tokens = _inherited(requests)
    keys: list[list[Key]] = []
    for i in range(len(requests)):
        first, last = requests.block_offsets[i], requests.block_offsets[i + 1]
        if last == first:
            keys.append([("prefix", names[i], b) for b in range(tokens[i] // size)])
            continue
        width, prompt = requests.hash_block_tokens, int(requests.prompt_tokens[i])
        hashes = requests.block_hashes[first:last].tolist()[: -(-prompt // width)]
        covered = min(len(hashes) * width, prompt)
        mine: list[Key] = []
        for b in range(covered // size):
            whole = -(-(b + 1) * size // width)
            short = whole == len(hashes) and covered // size < whole * width // size
            mine.append((tuple(hashes[:whole]), covered // size if short else 0, b))
        keys.append(mine)
    return keys


def turns_before(requests: Requests) -> list[tuple[int, int]]:
    """For each request the session's turn before, −1 for none, and the prompt tokens that are that turn's."""
    last: dict[int, int] = {}
    found = []
    for i, session in enumerate(requests.session_id.tolist()):
        before = last.get(session, -1) if session >= 0 else -1
        tokens = 0
        if before >= 0:
            whole = int(requests.prompt_tokens[before] + requests.output_tokens[before])
            given = int(requests.history_tokens[i])
            tokens = min(whole if given < 0 else given, int(requests.prompt_tokens[i]))
        last[session] = i
        found.append((before, tokens))
    return found


def _inherited(requests: Requests) -> tuple[list[int], list[int]]:
    names = requests.prefix_id.tolist()
    tokens = [
        min(t, s) if name >= 0 else 0
        for name, t, s in zip(
            names, requests.prefix_tokens.tolist(), requests.prompt_tokens.tolist(), strict=True
        )
    ]
    for i, (before, history) in enumerate(turns_before(requests)):
        hashed = requests.block_offsets[i + 1] > requests.block_offsets[i]
        if names[i] < 0 and history > 0 and not hashed:
            names[i], tokens[i] = names[before], min(tokens[before], history)
    return names, tokens

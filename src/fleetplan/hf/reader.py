"""A config.json read key by key: what is needed and missing is an error that names the key and the family."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fleetplan.errors import InputError

LARGEST = 10**9
"""No size of a model (layers, widths, experts, tokens) is beyond this."""

SHAPE_KEYS = (
    "num_experts",
    "num_local_experts",
    "n_routed_experts",
    "moe_num_experts",
    "kv_lora_rank",
    "layer_types",
    "layers_block_type",
    "hybrid_override_pattern",
    "block_configs",
    "full_attention_interval",
    "num_kv_shared_layers",
    "cross_attention_layers",
    "compress_ratios",
    "index_topk",
    "attention_chunk_size",
    "no_rope_layers",
    "encoder_layers",
)
"""Keys that change the shape: present and not read by the family means that the family would guess."""


class Config:
    """One level of a config.json, its family and the place that errors name; it remembers the keys that were read."""

    def __init__(
        self,
        values: Mapping[str, Any],
        family: str,
        where: str,
        prefix: str = "",
        outer: Config | None = None,
    ) -> None:
        self.values = values
        self.family = family
        self.where = where
        self.prefix = prefix
        self.outer = outer
        self.read: set[str] = set()
        self.children: dict[str, Config] = {}
        self.notes: list[str] = []

    def fault(self, key: str, what: str, right: str) -> InputError:
        """The error for one key, with the family named."""
        return InputError(f"{self.where}: {self.family}: {self.prefix}{key}: {what}, {right}")

    def has(self, key: str) -> bool:
        """Whether the key is there and not null."""
        self.read.add(key)
        return self.values.get(key) is not None

    def integer(self, key: str, *, least: int = 1, most: int = LARGEST) -> int:
        """A needed whole number. Raises InputError when it is missing, null, of another type or out of least..most."""
        self.read.add(key)
        right = f"needed, a whole number of {least} to {most}"
        if key not in self.values:
            raise self.fault(key, "missing", right)
        value = self.values[key]
        if value is None:
            raise self.fault(key, "null", right)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.fault(key, f"got {value!r}", right)
        return value

    def maybe(self, key: str, *, least: int = 1) -> int | None:
        """A whole number, or None where the key is absent or null."""
        return self.integer(key, least=least) if self.has(key) else None

    def integer_or(self, key: str, default: int, *, least: int = 1) -> int:
        """A whole number, or what the family takes where the key is absent or null."""
        value = self.maybe(key, least=least)
        return default if value is None else value

    def first(self, *keys: str, least: int = 1) -> int:
        """The first of several spellings of one needed key."""
        for key in keys:
            if self.has(key):
                return self.integer(key, least=least)
        return self.integer(keys[0], least=least)

    def flag(self, key: str, default: bool) -> bool:
        """True or false, or what the family takes where the key is absent or null."""
        if not self.has(key):
            return default
        value = self.values[key]
        if not isinstance(value, bool):
            raise self.fault(key, f"got {value!r}", "true or false is needed")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number; `default` where the key is absent or null, an error where there is no default."""
        if not self.has(key) and default is not None:
            return default
        value = self.values.get(key)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            what = f"got {value!r}" if key in self.values else "missing"
            raise self.fault(key, what, "a finite number is needed")
        return float(value)

    def text(self, key: str, known: Sequence[str], default: str | None = None) -> str:
        """One of the known words; `default` where the key is absent or null."""
        if not self.has(key) and default is not None:
            return default
        value = self.values.get(key)
        if value not in known:
            what = f"got {value!r}" if key in self.values else "missing"
            raise self.fault(key, what, f"one of {', '.join(known)} is needed")
        return str(value)

    def words(self, key: str, length: int, known: Sequence[str]) -> list[str]:
        """A needed list of one known word a layer."""
        found = self.items(key, length)
        for index, word in enumerate(found):
            if word not in known:
                raise self.fault(f"{key}[{index}]", f"got {word!r}", f"known are {', '.join(known)}")
        return found

    def items(self, key: str, length: int | None = None) -> list[Any]:
        """A needed list, of `length` entries where that is given."""
        if not self.has(key):
            raise self.fault(key, "missing" if key not in self.values else "null", "a list is needed")
        value = self.values[key]
        if not isinstance(value, list):
            raise self.fault(key, f"got {value!r}", "a list is needed")
        if length is not None and len(value) != length:
            raise self.fault(key, f"got {len(value)} entries", f"one a layer is needed, {length}")
        return value

    def whole(self, key: str, *, least: int = 0) -> list[int]:
        """A list of whole numbers; empty where the key is absent or null."""
        if not self.has(key):
            return []
        for index, value in enumerate(self.items(key)):
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST:
                raise self.fault(f"{key}[{index}]", f"got {value!r}", "a whole number is needed")
        return list(self.values[key])

    def part(self, key: str, family: str | None = None) -> Config:
        """A needed nested object, read as a level of its own."""
        if not self.has(key):
            raise self.fault(key, "missing" if key not in self.values else "null", "an object is needed")
        if key not in self.children:
            value = self.values[key]
            if not isinstance(value, dict):
                raise self.fault(key, f"got {value!r}", "an object is needed")
            self.children[key] = Config(
                value, family or self.family, self.where, f"{self.prefix}{key}.", self
            )
        return self.children[key]

    def tied(self, default: bool) -> bool:
        """tie_word_embeddings of this level, else of the one around it, else what the family takes when it is absent."""
        around = self.outer
        if self.has("tie_word_embeddings"):
            own = self.flag("tie_word_embeddings", default)
            if (
                around
                and around.has("tie_word_embeddings")
                and around.flag("tie_word_embeddings", own) != own
            ):
                self.notes.append(
                    f"tie_word_embeddings is {str(own).lower()} in {self.prefix[:-1]} and the opposite around it:"
                    " the inner one was taken"
                )
            return own
        if around and around.has("tie_word_embeddings"):
            return around.flag("tie_word_embeddings", default)
        return default

    def note(self, text: str) -> None:
        """Remember a sentence for the person who reads the answer."""
        if text not in self.notes:
            self.notes.append(text)

    def check_unread(self) -> None:
        """Refuse a config with a key that changes the shape in a way this family is not known to have."""
        for key in SHAPE_KEYS:
            if key not in self.read and self.values.get(key) not in (None, False, 0, [], {}):
                raise self.fault(
                    key,
                    f"got {_short(self.values[key])}",
                    "this family is not known to have it, so the shape would be a guess",
                )

    def kept(self) -> dict[str, Any]:
        """The keys that were read, with their values: what a catalogue entry needs of a config.json."""
        kept = {key: self.values[key] for key in self.values if key in self.read}
        return kept | {key: child.kept() for key, child in self.children.items()}


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."

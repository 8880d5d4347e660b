"""What a precision scheme stores, what it multiplies in, and what it leaves in bf16.

MODEL: bf16 2 bytes; fp8, int8 1; int4 with one bf16 scale a group of g weights (4 + 16/g)/8; NVFP4 4.5 bits; MXFP4 4.25 bits.
Only the matrices of the layers are quantised; embedding, head, router, norms and biases stay in bf16 unless a scheme says otherwise.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from fleetplan.catalog import Compute, Gpu
from fleetplan.errors import InputError, unknown_name
from fleetplan.physics.architecture import Architecture, Tensor
from fleetplan.physics.tensor import Group

QUANTISED: frozenset[Group] = frozenset({"attention", "mixer", "ffn", "expert", "shared_expert"})
EVERYTHING: frozenset[Group] = QUANTISED | {
    "embedding",
    "head",
    "router",
    "norm",
    "bias",
    "indexer",
    "vision",
}
BF16_BITS = 16.0


@dataclass(frozen=True)
class Scheme:
    """How weights are stored and multiplied."""

    name: str
    bits: float
    """Bits of a quantised weight, its share of scales and zero points included."""
    compute: Compute
    """What the matrix products run in, where the GPU has it."""
    quantised: frozenset[Group]
    """Groups of tensors stored at `bits`; the rest is bf16."""
    description: str
    apart: tuple[tuple[Group, float], ...] = ()
    """Groups that are stored at bits of their own."""

    def bits_of(self, group: Group) -> float:
        """Bits of one weight of a tensor group."""
        if group not in self.quantised:
            return BF16_BITS
        return dict(self.apart).get(group, self.bits)

    def bytes_of(self, tensor: Tensor) -> float:
        """Bytes of every stored copy of a tensor."""
        return tensor.parameters * self.bits_of(tensor.group) / 8


def _scheme(
    name: str,
    bits: float,
    compute: Compute,
    text: str,
    groups: frozenset[Group] = QUANTISED,
    apart: tuple[tuple[Group, float], ...] = (),
) -> Scheme:
    return Scheme(name, bits, compute, groups, text, apart)


SCHEMES: dict[str, Scheme] = {
    scheme.name: scheme
    for scheme in (
        _scheme("bf16", 16, "bf16", "as trained; fp16 is the same", frozenset()),
        _scheme("fp8", 8, "fp8", "8-bit floats, weights and activations"),
        _scheme("fp8-weight-only", 8, "bf16", "8-bit float weights, products in bf16"),
        _scheme("int8", 8, "bf16", "8-bit integer weights, products in bf16 (W8A16)"),
        _scheme("w8a8", 8, "int8", "8-bit integer weights and activations"),
        _scheme("int4", 4.125, "bf16", "4-bit integer weights, one bf16 scale a group of 128 (W4A16)"),
        _scheme("awq", 4.15625, "bf16", "int4 with a 4-bit zero point beside each scale, group 128"),
        _scheme("gptq", 4.15625, "bf16", "int4 with a 4-bit zero point beside each scale, group 128"),
        _scheme("w4a8", 4.125, "fp8", "4-bit integer weights, products in fp8"),
        _scheme("nvfp4", 4.5, "fp4", "4-bit floats, one fp8 scale a group of 16"),
        _scheme(
            "mxfp4",
            4.25,
            "bf16",
            "4-bit floats, one 8-bit exponent a group of 32; products in bf16, on GPUs with fp4 units in fp8",
        ),
        _scheme(
            "fp8-mxfp4-experts",
            8,
            "fp8",
            "fp8, but for experts in 4-bit floats with one 8-bit exponent a group of 32",
            apart=(("expert", 4.25),),
        ),
        _scheme("fp8-all", 8, "fp8", "textbook: one byte for every parameter", EVERYTHING),
        _scheme("int8-all", 8, "bf16", "textbook: one byte for every parameter", EVERYTHING),
    )
}

ALIASES = {
    "fp16": "bf16",
    "float16": "bf16",
    "bfloat16": "bf16",
    "fp8-w8a8": "fp8",
    "w8a8-fp8": "fp8",
    "float8": "fp8",
    "w8a16": "int8",
    "int8-w8a8": "w8a8",
    "w8a8-int8": "w8a8",
    "w4a16": "int4",
    "w4a16-awq": "awq",
    "w4a16-gptq": "gptq",
}

KV_BYTES: dict[str, float] = {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.5}
"""Bytes of one cached number by KV dtype; scales are a few bytes a head and not counted."""

STORED = "stored"
"""The scheme that means: as the checkpoint itself is stored."""


def scheme(name: str, architecture: Architecture | None = None) -> Scheme:
    """The scheme of a name; "int4-g64" sets the group; "stored" is the checkpoint's own, which needs the architecture.

    A checkpoint that is already stored in the scheme named keeps what its own quantisation config keeps.

    >>> scheme("int4-g64").bits
    4.25
    """
    wanted = name.lower().replace("_", "-")
    wanted = ALIASES.get(wanted, wanted)
    if architecture is not None and wanted in (STORED, architecture.stored_weights):
        made = SCHEMES[architecture.stored_weights or "bf16"]
        kept = frozenset(architecture.unquantised)
        return replace(made, quantised=made.quantised - kept) if kept else made
    group = re.fullmatch(r"(int4|awq|gptq)-g(\d+)", wanted)
    if group and int(group[2]) > 0:
        base, size = SCHEMES[group[1]], int(group[2])
        extra = 16 if group[1] == "int4" else 20
        return replace(
            base,
            name=wanted,
            bits=4 + extra / size,
            description=base.description.replace("128", str(size)),
        )
    if wanted not in SCHEMES:
        raise InputError(f"weights: {unknown_name('precision scheme', name, [*SCHEMES, 'int4-g64', STORED])}")
    return SCHEMES[wanted]


def kv_dtype_bytes(name: str) -> float:
    """Bytes of one cached number. Raises InputError for an unknown KV dtype."""
    if name.lower() not in KV_BYTES:
        raise InputError(f"kv_cache: {unknown_name('KV cache dtype', name, KV_BYTES)}")
    return KV_BYTES[name.lower()]


def compute_dtype(scheme: Scheme, gpu: Gpu) -> tuple[Compute, str | None]:
    """What the products run in on this GPU, and a sentence where that is not what the scheme asks for.

    A GPU without the scheme's dtype unpacks the weights and multiplies in bf16: the bytes shrink, the compute roof does not move.
    Matrix units that know 4-bit floats multiply MXFP4 weights by 8-bit activations, at the rate of fp8.
    """
    if scheme.name == "mxfp4" and "fp4" in gpu.flop_per_s:
        return "fp8", None
    if scheme.compute in gpu.flop_per_s:
        return scheme.compute, None
    return "bf16", (
        f"{gpu.title} has no {scheme.compute} matrix units: {scheme.name} weights are unpacked and multiplied in bf16"
    )


def weight_bytes(architecture: Architecture, scheme: Scheme) -> float:
    """Bytes of the whole language model's weights in a scheme.

    >>> from fleetplan.physics.architecture import decoder
    >>> weight_bytes(decoder("llama-2-7b", 32, 4096, 32, 32, 11008, 32000), SCHEMES["bf16"])
    13476831232.0
    """
    return sum(scheme.bytes_of(tensor) for tensor in architecture.tensors())

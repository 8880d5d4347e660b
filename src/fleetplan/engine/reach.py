"""The state's arrays reached by one pointer, which a compiled function takes instead of the some 250 words that their headers are."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core.imputils import lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import intrinsic, models, register_model
from numba.np.arrayobj import get_itemsize, populate_array
from numpy.typing import NDArray

WORDS = 3
"""Of an array: its address, and its shape of at most two dimensions."""


def addresses(arrays: Any) -> NDArray[np.int64]:
    """Where these arrays are; shape (arrays, WORDS). They must outlive it, and stay where they are."""
    table = np.zeros((len(arrays), WORDS), dtype=np.int64)
    for row, array in zip(table, arrays, strict=True):
        assert array.flags.c_contiguous, "an array's strides are taken from its shape"
        row[0] = array.ctypes.data
        row[1 : 1 + array.ndim] = array.shape
    return table


class Reached(types.Type):
    """Type of a pointer to the addresses of such arrays, by name."""

    def __init__(self, arrays: Any) -> None:
        self.arrays = arrays
        digest = hashlib.sha256(str(arrays).encode()).hexdigest()
        super().__init__(name=f"Reached{digest[:16]}")  # short: it is in the name of every compiled function


@register_model(Reached)
class _Pointer(models.PrimitiveModel):
    def __init__(self, manager: Any, reached: Any) -> None:
        super().__init__(manager, reached, ir.IntType(64).as_pointer())


@infer_getattr
class _Arrays(AttributeTemplate):
    key = Reached

    def generic_resolve(self, reached: Any, name: str) -> Any:  # type: ignore[override]
        fields = reached.arrays.fields
        return reached.arrays.types[fields.index(name)] if name in fields else None


@lower_getattr_generic(Reached)
def _array(context: Any, builder: Any, reached: Any, pointer: Any, name: str) -> Any:
    at = reached.arrays.fields.index(name)
    kind = reached.arrays.types[at]
    array = context.make_array(kind)(context, builder)

    def word(index: int, of: Any) -> Any:
        place = builder.gep(pointer, [ir.Constant(ir.IntType(64), at * WORDS + index)])
        loaded = builder.load(builder.bitcast(place, of.as_pointer()))
        loaded.set_metadata(
            "invariant.load", builder.module.add_metadata([])
        )  # nobody writes there meanwhile
        return loaded

    shape = [word(1 + n, ir.IntType(64)) for n in range(kind.ndim)]
    itemsize = context.get_constant(types.intp, get_itemsize(context, kind))
    strides = [itemsize]
    for size in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], size))
    populate_array(array, word(0, array.data.type), shape, strides, itemsize, meminfo=None)
    return array._getvalue()


def _reach(typing_context: Any, arrays: Any, table: Any) -> Any:
    """The pointer by which compiled functions reach these arrays, a named tuple, given their `addresses`."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.make_array(signature.args[1])(context, builder, arguments[1]).data

    return Reached(arrays)(arrays, table), codegen


reach: Any = intrinsic(_reach)

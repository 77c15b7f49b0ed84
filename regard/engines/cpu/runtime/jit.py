"""What compiled functions are made with: Numba, imported with this module and so on first use alone.

Kernels run on one thread and release the GIL: `thread_pool.py` runs them side by side. NaN must pass through them, so
that of fast mathematics only what keeps it is allowed.
"""

from __future__ import annotations

import inspect
import os
import pickle
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.core.cgutils import get_or_insert_function
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps
from numba.extending import intrinsic

from regard.engines.cpu.kernels.records import RECORDS
from regard.engines.cpu.runtime import kernel_cache
from regard.engines.cpu.runtime.signatures import signature_of

Function: TypeAlias = Callable[..., Any]  # arguments of compiled functions have no types that mypy could read

_FAST = {"contract", "reassoc", "arcp", "nsz"}


def kernel(function: Function | None = None, **others: Any) -> Any:
    """A compiled function that Python calls; kept on disk between processes, where a disk lets us.

    Args:
        function: What to compile. Its arguments' names say their types: see `signatures.py`; those of records say which
            fields Python hands over in their place: see `kernels/records.py`.
        others: The types of those whose names mean something else there.
    """
    if function is None:
        return lambda each: kernel(each, **others)
    function = _unpacked(function)
    made = Kernel(function, signature_of(function, others))
    if made.name in KERNELS:
        raise ValueError(f"two kernels are called {made.name}: each would load the machine code of the other")
    KERNELS[made.name] = made
    return made


def _unpacked(function: Function) -> Function:
    """A function that takes the fields of records, and packs them for this one."""
    names = inspect.signature(function).parameters
    if not RECORDS.keys() & names:
        return function
    fields = {name: ", ".join(RECORDS[name]._fields) if name in RECORDS else name for name in names}
    packed = ", ".join(f"{name}({each})" if name in RECORDS else name for name, each in fields.items())
    # Written out where it is called: LLVM would otherwise go through all of it twice.
    inlined = numba.njit(inline="always")(function)
    scope: dict[str, Any] = {"__name__": function.__module__, "packed": inlined, **RECORDS}
    exec(f"def {function.__name__}({', '.join(fields.values())}):\n    return packed({packed})", scope)
    unpacked: Function = scope[function.__name__]
    unpacked.__doc__ = function.__doc__
    return unpacked


class Kernel:
    """A compiled function, of one signature. Its machine code is compiled or taken from disk before its first call.

    Args:
        function: What to compile.
        signature: The types of its arguments.
    """

    def __init__(self, function: Function, signature: tuple[Any, ...]) -> None:
        self.name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
        self.signature = signature
        self.dispatcher = _compiled(function, _FAST)
        self._ready = False
        self._stored: bytes | None = None  # machine code from disk, not yet taken in
        self.__doc__ = function.__doc__

    def __call__(self, *arguments: Any) -> Any:
        if not self._ready:
            self.prepare()
        return self.dispatcher(*arguments)

    def fetch(self) -> bool:
        """Whether there is machine code, here or on disk; what is on disk is read, so that it is there when called."""
        if not self._ready and self._stored is None:
            self._stored = kernel_cache.read(self.name)
        return self._ready or self._stored is not None

    def prepare(self) -> None:
        """Take machine code from disk, or else compile it and keep it there."""
        with _preparing:
            if self._ready:
                return
            if not (self.fetch() and self._take()):
                self.dispatcher.compile(self.signature)
                kernel_cache.write(self.name, dumps(self.dispatcher.overloads[self.signature]._reduce()))
            self.dispatcher.disable_compile()  # another signature is a mistake, which would otherwise cost seconds
            self._ready, self._stored = True, None

    def _take(self) -> bool:
        """Take in what was read; whether it could be."""
        assert self._stored is not None
        context = self.dispatcher.targetctx
        context.refresh()
        try:
            found = CompileResult._rebuild(context, *pickle.loads(self._stored))
        except Exception:  # whole, as its digest shows, but of another making: it is made again
            return False
        context.insert_user_function(found.entry_point, found.fndesc, [found.library])
        self.dispatcher.add_overload(found)
        return True


KERNELS: dict[str, Kernel] = {}  # every one, by name, of the modules that are imported

_preparing = threading.RLock()


def _forget() -> None:
    """In a forked child: whoever held the lock is not there."""
    global _preparing
    _preparing = threading.RLock()


os.register_at_fork(after_in_child=_forget)


def helper(function: Function) -> Function:
    """A compiled function that kernels call, on whole rows or single numbers."""
    compiled: Function = _compiled(function, _FAST)
    return compiled


def exact_helper(function: Function) -> Function:
    """A helper whose sums must be done in the order in which they are written."""
    compiled: Function = _compiled(function, {"contract"})
    return compiled


def _compiled(function: Function, fast: set[str]) -> Any:
    """What Numba makes of a function, under a name that no other has.

    Symbols are called after functions, and where machine code from two processes meets, one of two with the same name
    serves both kernels. So the name of a function that another one made says what it was made of.
    """
    if function.__closure__:
        parts = (_called(cell.cell_contents) for cell in function.__closure__)
        function.__qualname__ += f"({', '.join(parts)})"
    return numba.njit(nogil=True, error_model="numpy", fastmath=fast)(function)


def _called(part: Any) -> str:
    """What a number or function that another is made of is called in its name."""
    if isinstance(part, int | float | np.number):
        return repr(part)
    function = getattr(part, "py_func", part)
    return f"{function.__module__}.{function.__qualname__}"


@intrinsic  # type: ignore[untyped-decorator]
def larger(typing: Any, left: Any, right: Any) -> Any:
    """The larger of two numbers, the other where one is NaN: Python's comparison would not be vectorised."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = arguments[0].type
        function = builder.module.declare_intrinsic("llvm.maxnum", [kind], ir.FunctionType(kind, [kind, kind]))
        return builder.call(function, arguments, fastmath=("nsz", "nnan"))

    return left(left, left), build


@intrinsic  # type: ignore[untyped-decorator]
def two_to_the(typing: Any, exponent: Any) -> Any:
    """2ⁿ of an integer n in [−126, 127], float32, made of its bits."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        integer = ir.IntType(32)
        biased = builder.add(arguments[0], ir.Constant(integer, 127))
        return builder.bitcast(builder.shl(biased, ir.Constant(integer, 23)), ir.FloatType())

    return types.float32(types.int32), build


@intrinsic  # type: ignore[untyped-decorator]
def fetch(typing: Any, matrix: Any, row: Any, column: Any) -> Any:
    """Ask for the cache line of a number of a matrix, which will be needed soon."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        whole, byte = ir.IntType(32), ir.IntType(8).as_pointer()
        row_stride, column_stride = (builder.extract_value(array.strides, axis) for axis in (0, 1))
        offset = builder.add(builder.mul(arguments[1], row_stride), builder.mul(arguments[2], column_stride))
        address = builder.gep(builder.bitcast(array.data, byte), [offset])
        kind = ir.FunctionType(ir.VoidType(), [byte, whole, whole, whole])
        function = get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        read, keep, data = (ir.Constant(whole, n) for n in (0, 3, 1))
        builder.call(function, [address, read, keep, data])
        return context.get_dummy_value()

    return types.void(matrix, types.intp, types.intp), build


@intrinsic
def multiply(  # type: ignore[no-untyped-def]
    typing, sgemm, n_rows, n_columns, depth, left, left_stride, left_turned, right, right_stride, right_turned, alpha,
    beta, product, product_stride,
):  # fmt: skip
    """product = alpha · left · right + beta · product, by the BLAS routine at the address `sgemm`.

    Matrices are float32, a row after the other: an address and how many numbers apart rows are. One that is `turned` is
    stored transposed. The address is an argument, since a constant would be wrong in the next process.
    """

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        integer, real, byte = ir.IntType(32), ir.FloatType(), ir.IntType(8)
        (address, rows, columns, depth, left, left_stride, left_turned, right, right_stride, right_turned, alpha,
         beta, product, product_stride) = arguments  # fmt: skip

        def place(value: Any) -> Any:
            """Fortran takes everything by reference."""
            slot = builder.alloca(value.type)
            builder.store(value, slot)
            return slot

        def size(value: Any) -> Any:
            return place(builder.trunc(value, integer))

        def letter(turned: Any) -> Any:
            return place(
                builder.select(
                    builder.trunc(turned, ir.IntType(1)), ir.Constant(byte, ord("T")), ir.Constant(byte, ord("N"))
                )
            )

        def matrix(value: Any) -> Any:
            return builder.inttoptr(value, real.as_pointer())

        # Fortran stores columns after each other: what it takes for the product's transpose is the product.
        arguments = [
            letter(right_turned), letter(left_turned), size(columns), size(rows), size(depth),
            place(alpha), matrix(right), size(right_stride), matrix(left), size(left_stride),
            place(beta), matrix(product), size(product_stride),
        ]  # fmt: skip
        kind = ir.FunctionType(ir.VoidType(), [each.type for each in arguments])
        builder.call(builder.inttoptr(address, kind.as_pointer()), arguments)
        return context.get_dummy_value()

    whole = types.int64
    signature = types.void(
        whole, whole, whole, whole, whole, whole, whole, whole, whole, whole, types.float32, types.float32, whole, whole
    )
    return signature, build


_LOG2_E = np.float32(1.4426950408889634)
_LN2_HIGH = np.float32(0.693359375)  # ln 2 in two parts: the first has few bits, so that its multiples are exact
_LN2_LOW = np.float32(-2.12194440e-4)
_SMALLEST = np.float32(-87.3)  # below, e^x is not a normal number: it counts as 0


@exact_helper
def exponential(x):  # type: ignore[no-untyped-def]
    """e^x of a float32 up to 88, to about one unit in the last place; 0 below −87.3; NaN passes."""
    bounded = _SMALLEST if x < _SMALLEST else x
    n = np.rint(bounded * _LOG2_E)
    r = bounded - n * _LN2_HIGH - n * _LN2_LOW  # |r| ≤ ln 2 / 2
    p = np.float32(1.9875691500e-4)
    p = p * r + np.float32(1.3981999507e-3)
    p = p * r + np.float32(8.3334519073e-3)
    p = p * r + np.float32(4.1665795894e-2)
    p = p * r + np.float32(1.6666665459e-1)
    p = p * r + np.float32(5.0000001201e-1)
    y = (p * (r * r) + r + np.float32(1.0)) * two_to_the(np.int32(n))
    return np.float32(0.0) if x < _SMALLEST else y


@exact_helper
def sigmoid(x):  # type: ignore[no-untyped-def]
    """1 / (1 + e^−x), float32; 0 at −inf."""
    small = exponential(-abs(x))
    return (np.float32(1.0) if x >= np.float32(0.0) else small) / (np.float32(1.0) + small)


@exact_helper
def tangent(x):  # type: ignore[no-untyped-def]
    """tanh(x), float32, to about two units in the last place near 0 too; NaN passes."""
    double = abs(x) * np.float32(2.0)
    double = np.float32(20.0) if double > np.float32(20.0) else double  # tanh is 1 from there on
    n = np.rint(double * _LOG2_E)
    r = double - n * _LN2_HIGH - n * _LN2_LOW
    p = np.float32(1.9875691500e-4)
    p = p * r + np.float32(1.3981999507e-3)
    p = p * r + np.float32(8.3334519073e-3)
    p = p * r + np.float32(4.1665795894e-2)
    p = p * r + np.float32(1.6666665459e-1)
    p = p * r + np.float32(5.0000001201e-1)
    scale = two_to_the(np.int32(n))
    # e^2|x| − 1, without the cancellation of computing e^2|x| first.
    less_one = scale * (p * (r * r) + r) + (scale - np.float32(1.0))
    y = less_one / (less_one + np.float32(2.0))
    return -y if x < np.float32(0.0) else y

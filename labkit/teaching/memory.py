"""How much memory this process uses, native libraries included."""

import ctypes
import gc

import psutil


class _Mallinfo2(ctypes.Structure):
    """glibc's `struct mallinfo2`; `man mallinfo2` explains the fields."""

    _names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in _names.split()]


def allocated_megabytes() -> float:
    """Megabytes (10⁶ bytes) that this process has allocated with `malloc` and not freed.

    Python, NumPy, TensorFlow and Reverb all allocate with it. The resident set, which tools such
    as `top` show, would hide small changes, because `malloc` keeps freed memory for reuse.

    Raises:
        OSError: the C library is not glibc 2.33 or newer.
    """
    gc.collect()
    try:
        mallinfo2 = ctypes.CDLL(None).mallinfo2
    except AttributeError:
        raise OSError("measuring memory needs glibc 2.33 or newer") from None
    mallinfo2.restype = _Mallinfo2
    info = mallinfo2()
    return (info.uordblks + info.hblkhd) / 1e6


def resident_bytes() -> int:
    """Bytes of this process that are in RAM now (the resident set)."""
    return psutil.Process().memory_info().rss

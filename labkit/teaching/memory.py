"""How much memory this process uses, native libraries included."""

import ctypes
import gc
import os
from pathlib import Path


class _Mallinfo2(ctypes.Structure):
    """glibc's `struct mallinfo2`; `man mallinfo2` explains the fields."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


def allocated_megabytes() -> float:
    """Megabytes (10⁶ bytes) that this process has asked of `malloc` and not given back.

    Python, NumPy, TensorFlow and Reverb all ask there. The resident set that tools such as `top`
    show would hide small changes: `malloc` keeps freed memory for later.

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
    """What of this process is in RAM now; 0 where /proc does not tell."""
    path = Path("/proc/self/statm")
    return int(path.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if path.exists() else 0

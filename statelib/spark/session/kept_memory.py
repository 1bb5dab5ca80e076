"""The memory that a process has freed: it stays with the process for a while, for the next columns.

A run allocates and frees columns of megabytes all the time. By default, the allocators of glibc (numpy) and of Arrow
return them to the kernel at once, and it fills each page with zeros before the process gets it again."""

import ctypes
from collections.abc import MutableMapping

LARGEST = 256 << 20
"""The size in bytes from which glibc returns an allocation to the kernel as soon as it is freed."""
MOST = 512 << 20
"""The most bytes at the end of the heap that glibc keeps although they are free."""
UNUSED_MS = 60_000
"""The milliseconds for which Arrow's allocator keeps memory that nothing uses."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
"""The parameters of ``mallopt``, as in ``malloc.h``."""


def keep_freed_memory(environ: MutableMapping[str, str]) -> None:
    """Let this process and its children keep freed memory. ``environ``: the environment of the process.

    It must be called before PyArrow is imported, because Arrow's allocator reads its settings then. Without glibc, only
    Arrow keeps memory."""
    environ.setdefault("MIMALLOC_PURGE_DELAY", str(UNUSED_MS))
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, LARGEST)
        mallopt(_M_TRIM_THRESHOLD, MOST)
        mallopt(_M_ARENA_MAX, 1)  # threads use the memory that others have freed

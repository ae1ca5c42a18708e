"""The folders in which a container's dynamic loader looks for libraries by default.

Debian and its derivatives search one folder, Red Hat and its derivatives another, and which image will run is
not known when a spec is written: so both are always given.
"""

from __future__ import annotations

# The kernel's name for a machine -> Debian's (multiarch tuples).
MULTIARCH = {"x86_64": "x86_64-linux-gnu", "aarch64": "aarch64-linux-gnu"}

_FOLDERS = ("/usr/lib/{multiarch}", "/usr/lib64")
_FOLDERS32 = ("/usr/lib/i386-linux-gnu", "/usr/lib")
# Sub-folders of these that the loader searches before them, after its cache, if the processor is capable:
# glibc from 2.33 on (sysdeps/x86_64/dl-hwcaps-subdirs.c), and before (elf/dl-hwcaps.c; seen with 2.31).
_CAPABILITY_FOLDERS = {"x86_64": ("glibc-hwcaps/x86-64-v2", "x86_64")}
# What /proc/cpuinfo calls the features of x86-64-v2 (x86-64 psABI, 3.1.1); SSE3 is pni.
X86_64_V2 = frozenset(("cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"))


def library_folders(architecture: str, *, bits: int = 64) -> tuple[str, ...]:
    """Return the default folders of 64- or 32-bit libraries on ARCHITECTURE, Debian's first."""
    multiarch = MULTIARCH.get(architecture, architecture)
    folders = _FOLDERS if bits == 64 else _FOLDERS32
    return tuple(folder.format(multiarch=multiarch) for folder in folders)


def capability_folders(architecture: str) -> tuple[str, ...]:
    """Return the hwcaps sub-folders of the default folders; empty if there are none."""
    names = _CAPABILITY_FOLDERS.get(architecture, ())
    return tuple(f"{folder}/{name}" for name in names for folder in library_folders(architecture))

"""The folders in which a container's dynamic loader searches libraries by default.

Debian and its derivatives search one folder. Red Hat and its derivatives search another folder. The image is
unknown when cdigen writes a spec. For this reason a spec always has both folders.
"""

from __future__ import annotations

# The kernel's name of an architecture -> Debian's name (multiarch tuples).
MULTIARCH = {"x86_64": "x86_64-linux-gnu", "aarch64": "aarch64-linux-gnu"}

_FOLDERS = ("/usr/lib/{multiarch}", "/usr/lib64")
_FOLDERS32 = ("/usr/lib/i386-linux-gnu", "/usr/lib")
# Sub-folders of the default folders. If the processor supports a sub-folder, the loader searches it after the
# loader's cache and before the default folder. glibc 2.33 and later: sysdeps/x86_64/dl-hwcaps-subdirs.c;
# earlier glibc: elf/dl-hwcaps.c (tested with 2.31).
_CAPABILITY_FOLDERS = {"x86_64": ("glibc-hwcaps/x86-64-v2", "x86_64")}
# The names in /proc/cpuinfo of the features of x86-64-v2 (x86-64 psABI, 3.1.1); SSE3 is pni.
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

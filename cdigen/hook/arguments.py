"""Parse the hook's command line, a flat list of steps with their values: ``parse``.

``parse`` is the central name. The step names are those of the toolkit's own hooks. A name that is not
known is kept: a spec may be newer than the hook beside it.
"""

from __future__ import annotations

from cdigen.value import frozen

# By step: the least and the most values. Bounds of ours: a driver has about 60 libraries with three
# names each, and the longest list of links of any driver has 20.
STEPS = {
    "create-symlinks": (2, 257),
    "disable-device-node-modification": (0, 0),
    "enable-cuda-compat": (1, 1),
    "update-application-profile": (0, 0),
    "update-ldcache": (3, 1026),
}
ABIS = frozenset({"aarch64", "i386", "x86_64"})
REQUIRE = "require"
MAX_ARGUMENTS = 8192
MAX_VALUE = 4096

# What separates words, begins a comment or names a type in ld.so.conf: glibc, elf/ldconfig.c.
_NOT_IN_FOLDERS = frozenset(" ,:#=")


class ArgumentError(ValueError):
    """Say in one line what is wrong with the command line."""


@frozen
class HookRequest:
    """The steps asked for, in their order, each with its values, and the names of those required."""

    steps: tuple[tuple[str, tuple[str, ...]], ...]
    names: frozenset[str]
    required: frozenset[str]

    def values_of(self, step: str) -> list[tuple[str, ...]]:
        """Return the values of every STEP, which may be repeated."""
        return [values for name, values in self.steps if name == step]


def parse(words: list[str]) -> HookRequest:
    """Return what WORDS, the command line without the program's name, ask for.

    ArgumentError: it is malformed.
    """
    if len(words) > MAX_ARGUMENTS:
        raise ArgumentError(f"{len(words)} arguments are more than {MAX_ARGUMENTS}")
    steps: list[tuple[str, tuple[str, ...]]] = []
    required: set[str] = set()
    for name, values in _grouped(words):
        if name == REQUIRE:
            _count(name, values, 1, 1)
            required.add(values[0])
            continue
        if name in STEPS:
            _count(name, values, *STEPS[name])
        if name == "update-ldcache":
            _check_ldcache(values)
        elif name == "create-symlinks":
            for link in values[1:]:
                _check_path(name, link)
        steps.append((name, values))
    names = frozenset([name for name, _ in steps])
    return HookRequest(steps=tuple(steps), names=names, required=frozenset(required))


def _grouped(words: list[str]) -> list[tuple[str, tuple[str, ...]]]:
    starts = [at for at, word in enumerate(words) if word.startswith("--")]
    if words and starts[:1] != [0]:
        raise ArgumentError(f"{words[0][:100]!a} stands before the first step")
    for word in words:
        if not word or len(word) > MAX_VALUE or not word.isprintable():
            raise ArgumentError(f"{word[:100]!a} is empty, too long, or not printable")
    ends = [*starts, len(words)][1:]
    return [
        (words[start][2:], tuple(words[start + 1 : end])) for start, end in zip(starts, ends, strict=True)
    ]


def _count(name: str, values: tuple[str, ...], least: int, most: int) -> None:
    if not least <= len(values) <= most:
        wanted = str(least) if least == most else f"{least} to {most}"
        raise ArgumentError(f"--{name} takes {wanted} values, not {len(values)}")


def _check_ldcache(values: tuple[str, ...]) -> None:
    abi, folder, *names = values
    if abi not in ABIS:
        raise ArgumentError(f"--update-ldcache: ABI {abi[:100]!a} is none of {', '.join(sorted(ABIS))}")
    _check_path("update-ldcache", folder)
    if not _NOT_IN_FOLDERS.isdisjoint(folder):
        raise ArgumentError(f"--update-ldcache: {folder[:100]!a} cannot be a line of ld.so.conf")
    for name in names:
        if "/" in name:
            raise ArgumentError(f"--update-ldcache: {name[:100]!a} is not a file name")


def _check_path(step: str, path: str) -> None:
    first, *rest = path.split("/")
    if first or not rest or any(part in {"", ".", ".."} for part in rest):
        raise ArgumentError(f"--{step}: {path[:100]!a} is not an absolute path without '.' and '..'")

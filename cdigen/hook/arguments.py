"""``parse``: parses the hook's command line, which is a flat list of steps with their values.

The names of the steps are the names in NVIDIA's toolkit. ``parse`` accepts unknown names, because a spec can
be newer than the hook.
"""

from __future__ import annotations

from cdigen.value import frozen

# Name of a step -> minimum and maximum number of values. The limits are cdigen's own. A driver has about 60
# libraries with three names each. The longest list of links in a driver has 20 links.
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

# Characters with a special meaning in ld.so.conf (glibc, elf/ldconfig.c). They separate words, start a
# comment, or precede the type of a library.
_NOT_IN_FOLDERS = frozenset(" ,:#=")


class ArgumentError(ValueError):
    """The error for an invalid command line. The text of the error is the reason in one line."""


@frozen
class HookRequest:
    """The requested steps in their order, as pairs (name, values). ``required`` are the required steps."""

    steps: tuple[tuple[str, tuple[str, ...]], ...]
    names: frozenset[str]
    required: frozenset[str]

    def values_of(self, step: str) -> list[tuple[str, ...]]:
        """Return the values of each step with the name STEP. A step can be repeated."""
        return [values for name, values in self.steps if name == step]


def parse(words: list[str]) -> HookRequest:
    """Return the request in WORDS, the command line without the program's name.

    Raise ArgumentError if the command line is invalid.
    """
    if len(words) > MAX_ARGUMENTS:
        raise ArgumentError(f"{len(words)} arguments exceed the limit of {MAX_ARGUMENTS}")
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
        raise ArgumentError(f"{words[0][:100]!a} precedes the first step")
    for word in words:
        if not word or len(word) > MAX_VALUE or not word.isprintable():
            raise ArgumentError(f"{word[:100]!a} is empty, too long, or not printable")
    ends = [*starts, len(words)][1:]
    return [
        (words[start][2:], tuple(words[start + 1 : end])) for start, end in zip(starts, ends, strict=True)
    ]


def _count(name: str, values: tuple[str, ...], least: int, most: int) -> None:
    if not least <= len(values) <= most:
        expected = str(least) if least == most else f"{least} to {most}"
        raise ArgumentError(f"--{name} takes {expected} values, not {len(values)}")


def _check_ldcache(values: tuple[str, ...]) -> None:
    abi, folder, *names = values
    if abi not in ABIS:
        raise ArgumentError(f"--update-ldcache: unknown ABI {abi[:100]!a} (known: {', '.join(sorted(ABIS))})")
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

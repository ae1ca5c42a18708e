"""Make the hooks of a spec: the steps become arguments of cdigen's hook or of NVIDIA's.

cdigen's own hook does all of them in one process; NVIDIA's takes one in each, and its lines keep the
forms that other tools parse (containers/toolbox issue 1544).
"""

from __future__ import annotations

from cdigen.model.cdi import Hook
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdigen.model.cdi import Step

# One entry keeps the image's and the engine's environment out (CVE-2025-23266); Python needs none.
ENV = ("PATH=/usr/bin:/bin",)
# The hook takes some 10 ms; a hanging file system must not block the container for ever.
TIMEOUT_S = 10
# NVIDIA's runs ldconfig over the whole image.
NVIDIA_TIMEOUT_S = 60
# What the toolkit writes, which keeps the image's environment out as well.
NVIDIA_ENV = ("NVIDIA_CTK_DEBUG=false",)


@frozen
class HookProgram:
    """A hook that a host has: the file to start, and its first arguments; ``kind`` is one of HOOKS."""

    kind: str
    path: str
    args: tuple[str, ...]


def cdigen_hook(python: str, script: str) -> HookProgram:
    """Return cdigen's own hook: isolated (-I), without site (-S), never writing byte code (-B).

    Its own name is its path: from a bare name Python looks for its standard library through PATH.
    """
    return HookProgram(kind="cdigen", path=python, args=(python, "-I", "-S", "-B", script))


def nvidia_hook(path: str) -> HookProgram:
    """Return NVIDIA's nvidia-cdi-hook at PATH."""
    return HookProgram(kind="nvidia", path=path, args=(path.rpartition("/")[2],))


def hook_lines(program: HookProgram, steps: Iterable[Step], required: tuple[str, ...]) -> tuple[Hook, ...]:
    """Return the hooks by which PROGRAM does STEPS; none without steps."""
    wanted = tuple(steps)
    if not wanted:
        return ()
    if program.kind == "cdigen":
        return (_one(program, wanted, required),)
    return _several(program, wanted)


def _one(program: HookProgram, steps: tuple[Step, ...], required: tuple[str, ...]) -> Hook:
    words = [word for step in steps for word in (f"--{step.name}", *step.arguments)]
    names = {step.name for step in steps}
    words += [word for name in required if name in names for word in ("--require", name)]
    return Hook(path=program.path, args=(*program.args, *words), env=ENV, timeout=TIMEOUT_S)


def _several(program: HookProgram, steps: tuple[Step, ...]) -> tuple[Hook, ...]:
    """Return NVIDIA's lines: each step once, as they came, with the arguments of all of its kind."""
    options: dict[str, list[str]] = {}
    for step in steps:
        options.setdefault(step.name, []).extend(_nvidia_options(step))
    return tuple(
        Hook(path=program.path, args=(*program.args, name, *words), env=NVIDIA_ENV, timeout=NVIDIA_TIMEOUT_S)
        for name, words in options.items()
    )


def _nvidia_options(step: Step) -> list[str]:
    if step.name == "create-symlinks":
        target, *links = step.arguments
        return [word for link in links for word in ("--link", f"{target}::{link}")]
    if step.name == "enable-cuda-compat":
        return [f"--host-driver-version={step.arguments[0]}"]
    if step.name == "update-ldcache":
        return ["--folder", step.arguments[1]]
    return []

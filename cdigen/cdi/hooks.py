"""The hooks of a spec, with the steps as arguments of cdigen's hook or of NVIDIA's hook.

cdigen's hook runs all steps in one process. NVIDIA's hook runs one step in each process. Other tools parse
the command lines of NVIDIA's hook (containers/toolbox issue 1544).
"""

from __future__ import annotations

from cdigen.model.cdi import Hook
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdigen.model.cdi import HookStep

# If ``env`` of a hook has at least one entry, runtimes do not pass the environment of the image or the engine
# to the hook (CVE-2025-23266).
ENV = ("PATH=/usr/bin:/bin",)
# Seconds. The hook takes about 10 ms. The timeout ends a hook that hangs in a file system.
TIMEOUT_S = 10
# Seconds. NVIDIA's hook needs more time, because it runs ldconfig on the whole image.
NVIDIA_TIMEOUT_S = 60
# NVIDIA's toolkit writes this variable. It has the same effect as ENV.
NVIDIA_ENV = ("NVIDIA_CTK_DEBUG=false",)


@frozen
class HookProgram:
    """A hook program on the host, with the file to start and its first arguments.

    ``is_own`` is set for cdigen's hook, which runs all steps in one process.
    """

    is_own: bool
    path: str
    args: tuple[str, ...]


def cdigen_hook(python: str, script: str) -> HookProgram:
    """Return cdigen's own hook, which is the Python SCRIPT.

    PYTHON runs in isolated mode (-I), without the module site (-S), and does not write byte code (-B). The
    first argument is the full path of PYTHON. If the first argument were only a name, Python would use PATH
    to find its standard library.
    """
    return HookProgram(is_own=True, path=python, args=(python, "-I", "-S", "-B", script))


def nvidia_hook(path: str) -> HookProgram:
    """Return NVIDIA's nvidia-cdi-hook at PATH."""
    return HookProgram(is_own=False, path=path, args=(path.rpartition("/")[2],))


def hook_lines(
    program: HookProgram, steps: Iterable[HookStep], required: tuple[str, ...]
) -> tuple[Hook, ...]:
    """Return the hooks that run STEPS with PROGRAM.

    The result is empty if there are no steps. REQUIRED are the names of required steps. If a required step
    fails, cdigen's hook fails. NVIDIA's hook ignores REQUIRED.
    """
    every = tuple(steps)
    if not every:
        return ()
    if program.is_own:
        return (_cdigen_hook(program, every, required),)
    return _nvidia_hooks(program, every)


def _cdigen_hook(program: HookProgram, steps: tuple[HookStep, ...], required: tuple[str, ...]) -> Hook:
    words = [word for step in steps for word in (f"--{step.name}", *step.arguments)]
    names = {step.name for step in steps}
    words += [word for name in required if name in names for word in ("--require", name)]
    return Hook(path=program.path, args=(*program.args, *words), env=ENV, timeout=TIMEOUT_S)


def _nvidia_hooks(program: HookProgram, steps: tuple[HookStep, ...]) -> tuple[Hook, ...]:
    """Return one hook for each step name, in the order of STEPS.

    The arguments of a hook come from all steps with this name.
    """
    options: dict[str, list[str]] = {}
    for step in steps:
        options.setdefault(step.name, []).extend(_nvidia_options(step))
    return tuple(
        Hook(path=program.path, args=(*program.args, name, *words), env=NVIDIA_ENV, timeout=NVIDIA_TIMEOUT_S)
        for name, words in options.items()
    )


def _nvidia_options(step: HookStep) -> list[str]:
    if step.name == "create-symlinks":
        target, *links = step.arguments
        return [word for link in links for word in ("--link", f"{target}::{link}")]
    if step.name == "enable-cuda-compat":
        return [f"--host-driver-version={step.arguments[0]}"]
    if step.name == "update-ldcache":
        return ["--folder", step.arguments[1]]
    return []

"""Run the hook's steps: arguments and OCI state in, one line per problem out, and an exit code.

``run`` is the central name. Exit codes: 0 the container starts, whatever could not be done was said; 1 a
required step failed, or the hook has an error of its own (a module that is missing counts only where a step
is required); 2 the arguments are malformed. A runtime that
sees another code than 0 does not start the container, and shows what was said.
"""

from __future__ import annotations

import posix
import sys

from cdigen.hook.arguments import REQUIRE, STEPS, ArgumentError, parse
from cdigen.hook.container import ContainerPathError, open_container, open_current
from cdigen.hook.state import StateError, root_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn, TypeVar

    from cdigen.hook.arguments import HookRequest
    from cdigen.hook.container import ContainerRoot
    from cdigen.hook.loader import LibraryFolder

    T = TypeVar("T")

STARTED = 0
FAILED = 1
MALFORMED = 2

# What a failure of the step means for the container's user. "ld.so.conf.d" is the part of
# update-ldcache and enable-cuda-compat that the container can start without, required or not.
CONSEQUENCES = {
    "create-symlinks": "this link is not made",
    "disable-device-node-modification": "the driver's libraries may make device nodes in the container",
    "enable-cuda-compat": "the host driver's own libcuda is used",
    "update-application-profile": "EGL may offer GPUs that the container does not have",
    "ld.so.conf.d": "an ldconfig run in the container will forget the driver's libraries",
    "update-ldcache": "the loader's cache does not list the driver's libraries",
}
_MAX_LINE = 1000


class StepResults:
    """The steps that failed: reported on standard error at once, kept for the exit code."""

    def __init__(self) -> None:
        self.failed: set[str] = set()
        self._said: set[tuple[str, str]] = set()
        self.broken = False

    def attempt(self, step: str, work: Callable[..., T], *arguments: object) -> T | None:
        """Return what WORK returns; keep and say why it failed, so that the next step has its turn."""
        try:
            return work(*arguments)
        except ContainerPathError as refused:
            self.fail(step, f"{refused.where}: {refused.why}; {CONSEQUENCES[step]}")
        except ImportError as error:
            # By step, such as ctypes, which Debian's python3-minimal lacks: the others have their turn.
            self.fail(step, f"{error}; {CONSEQUENCES[step]}")
        except Exception as error:  # noqa: BLE001 - an error of ours must not keep other steps from running
            self.broken = True
            self.fail(step, _unexpected(error))
        return None

    def fail(self, step: str, line: str) -> None:
        """Say LINE and count STEP as failed."""
        self.failed.add(step)
        if (step, line) not in self._said:
            self._said.add((step, line))
            say(step, line)


def run() -> NoReturn:
    """Run the program, and exit at once: the interpreter's own exit takes a millisecond."""
    posix._exit(main(sys.argv[1:], 0))  # noqa: SLF001 - its public name


def main(words: list[str], stdin: int) -> int:
    """Do the steps that WORDS name in the container whose state STDIN gives; return the exit code."""
    try:
        _keep_standard_descriptors()
        posix.umask(0o022)
        return _started(words, stdin)
    except ArgumentError as error:
        say("arguments", f"{error}; nothing was done")
        return MALFORMED
    except ImportError as error:
        say("error", f"{error}; install cdigen's hook anew (its package, or make install-hook)")
        return FAILED if f"--{REQUIRE}" in words else STARTED
    except Exception as error:  # noqa: BLE001 - the runtime shows one line better than a traceback
        say("error", _unexpected(error))
        return FAILED


def say(step: str, line: str) -> None:
    """Write one line to standard error, whatever names of the image's are in it."""
    text = "".join([character if character.isprintable() else "?" for character in line[:_MAX_LINE]])
    try:  # noqa: SIM105 - contextlib's import would cost more than all of the hook's own work
        posix.write(2, f"cdigen-hook: {step}: {text}\n".encode("utf-8", "replace"))
    except OSError:
        pass  # standard error is closed


def _started(words: list[str], stdin: int) -> int:
    request = parse(words)
    outcome = StepResults()
    for step in sorted(request.names - STEPS.keys()):
        outcome.fail(step, "this cdigen-hook is too old to know the step; it is left out")
    try:
        path = root_path(stdin)
        container = open_current() if path is None else open_container(path)
    except StateError as error:
        return _without_root(request, str(error))
    except ContainerPathError as refused:
        return _without_root(request, f"{refused.where}: {refused.why}")
    _do(container, request, outcome)
    return FAILED if outcome.broken or outcome.failed & request.required else STARTED


def _without_root(request: HookRequest, why: str) -> int:
    say("container", f"{why}; no step is done")
    return FAILED if request.names & request.required else STARTED


def _do(container: ContainerRoot, request: HookRequest, outcome: StepResults) -> None:
    """Do every step that this hook knows, links first: a library folder may be one of them."""
    if "create-symlinks" in request.names:
        from cdigen.hook.symlinks import make_link  # noqa: PLC0415 - only where asked for, here and below

        for target, *links in request.values_of("create-symlinks"):
            for link in links:
                outcome.attempt("create-symlinks", make_link, container, target, link)
    if not request.names.isdisjoint({"update-ldcache", "enable-cuda-compat"}):
        _make_findable(container, request, outcome)
    if "disable-device-node-modification" in request.names:
        from cdigen.hook.device_params import disable  # noqa: PLC0415

        outcome.attempt("disable-device-node-modification", disable, container)
    if "update-application-profile" in request.names:
        from cdigen.hook.application_profile import update  # noqa: PLC0415

        outcome.attempt("update-application-profile", update, container)


def _make_findable(container: ContainerRoot, request: HookRequest, outcome: StepResults) -> None:
    """Put the folders of update-ldcache into the loader's cache, before them one that is newer."""
    from cdigen.hook.loader import folder_of, list_in_cache, list_in_conf  # noqa: PLC0415

    folders: list[LibraryFolder] = []
    gone: tuple[str, ...] = ()
    for (version,) in request.values_of("enable-cuda-compat"):
        from cdigen.hook.compat import FOLDER, compat_folder  # noqa: PLC0415

        gone = (FOLDER,)
        if found := outcome.attempt("enable-cuda-compat", compat_folder, container, version):
            folders.append(found)
    writers = ["enable-cuda-compat"] if folders else []
    if "update-ldcache" in request.names:
        folders += [folder_of(values) for values in request.values_of("update-ldcache")]
        writers.append("update-ldcache")
    if not folders:
        return
    outcome.attempt(writers[-1], list_in_cache, container, folders)
    if writers[-1] in outcome.failed:
        outcome.failed.update(writers)
    else:
        outcome.attempt("ld.so.conf.d", list_in_conf, container, folders, gone)


def _keep_standard_descriptors() -> None:
    """Make sure that no file of the container becomes descriptor 0, 1 or 2, where messages go."""
    while (fd := posix.open("/dev/null", posix.O_RDWR | posix.O_CLOEXEC)) <= 2:
        pass
    posix.close(fd)


def _unexpected(error: Exception) -> str:
    return f"{type(error).__name__}: {error}; this is an error of cdigen-hook, please report it"

"""The hook's program: runs the steps of the command line in the container that the OCI state describes.

The hook writes one line to standard error for each problem. There are three exit codes:

- 0: the container starts. Every failed step was reported.
- 1: a required step failed, or the hook has a defect. A missing Python module causes this exit code only if a
  step is required.
- 2: the arguments are invalid.

If the exit code is not 0, the runtime does not start the container, and shows the hook's messages.
"""

from __future__ import annotations

import posix
import sys

from cdigen.hook.arguments import REQUIRE, STEPS, ArgumentError, parse
from cdigen.hook.container import ContainerPathError, make_link, open_container, open_current
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

# Name of a step -> effect in the container if the step fails. "ld.so.conf.d" is a part of update-ldcache and
# enable-cuda-compat. If only this part of a required step fails, the container starts.
CONSEQUENCES = {
    "create-symlinks": "this link is not created",
    "disable-device-node-modification": "the driver's libraries may create device nodes in the container",
    "enable-cuda-compat": "the container uses the host driver's libcuda",
    "update-application-profile": "EGL may list GPUs that the container does not have",
    "ld.so.conf.d": "a run of ldconfig in the container will drop the driver's libraries",
    "update-ldcache": "the loader's cache does not list the driver's libraries",
}
_MAX_LINE = 1000


class StepResults:
    """The failed steps. Each is reported on standard error immediately, and stored for the exit code.

    ``broken`` is true if the hook has a defect.
    """

    def __init__(self) -> None:
        self.failed: set[str] = set()
        self._reported: set[tuple[str, str]] = set()
        self.broken = False

    def attempt(self, step: str, work: Callable[..., T], *arguments: object) -> T | None:
        """Return the result of WORK for STEP. If WORK fails, record and report this, and return None."""
        try:
            return work(*arguments)
        except ContainerPathError as refused:
            self.fail(step, f"{refused.where}: {refused.why}; {CONSEQUENCES[step]}")
        except ImportError as error:
            # The other steps run without the missing module. Debian's python3-minimal has no ctypes.
            self.fail(step, f"{error}; {CONSEQUENCES[step]}")
        except Exception as error:  # noqa: BLE001 - a defect of the hook must not prevent other steps
            self.broken = True
            self.fail(step, _unexpected(error))
        return None

    def fail(self, step: str, line: str) -> None:
        """Report LINE once, and record STEP as failed."""
        self.failed.add(step)
        if (step, line) not in self._reported:
            self._reported.add((step, line))
            report(step, line)


def run() -> NoReturn:
    """Run the program, and exit without the interpreter's cleanup, which takes a millisecond."""
    posix._exit(main(sys.argv[1:], 0))  # noqa: SLF001 - _exit is a public function


def main(words: list[str], stdin: int) -> int:
    """Run the steps in WORDS in the container that the OCI state on STDIN describes; return the exit code."""
    try:
        _keep_standard_descriptors()
        posix.umask(0o022)
        return _started(words, stdin)
    except ArgumentError as error:
        report("arguments", f"{error}; no step is run")
        return MALFORMED
    except ImportError as error:
        report("error", f"{error}; install cdigen's hook again (its package, or make install-hook)")
        return FAILED if f"--{REQUIRE}" in words else STARTED
    except Exception as error:  # noqa: BLE001 - one line is clearer in the runtime's message than a traceback
        report("error", _unexpected(error))
        return FAILED


def report(step: str, line: str) -> None:
    """Write LINE to standard error, with a question mark for each character that is not printable."""
    text = "".join([character if character.isprintable() else "?" for character in line[:_MAX_LINE]])
    try:  # noqa: SIM105 - the import of contextlib takes longer than the hook's work
        posix.write(2, f"cdigen-hook: {step}: {text}\n".encode("utf-8", "replace"))
    except OSError:
        pass  # standard error is closed


def _started(words: list[str], stdin: int) -> int:
    request = parse(words)
    outcome = StepResults()
    for step in sorted(request.names - STEPS.keys()):
        outcome.fail(step, "unknown step, skipped: this cdigen-hook is older than the spec")
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
    report("container", f"{why}; no step is run")
    return FAILED if request.names & request.required else STARTED


def _do(container: ContainerRoot, request: HookRequest, outcome: StepResults) -> None:
    """Run all known steps; links are first, because a library folder can be a link."""
    # The module of a step is imported only if the step is requested.
    if "create-symlinks" in request.names:
        for target, *links in request.values_of("create-symlinks"):
            for link in links:
                outcome.attempt("create-symlinks", make_link, container, target, link)
    if not request.names.isdisjoint({"update-ldcache", "enable-cuda-compat"}):
        _add_libraries(container, request, outcome)
    if "disable-device-node-modification" in request.names:
        from cdigen.hook.device_params import disable  # noqa: PLC0415

        outcome.attempt("disable-device-node-modification", disable, container)
    if "update-application-profile" in request.names:
        from cdigen.hook.application_profile import update  # noqa: PLC0415

        outcome.attempt("update-application-profile", update, container)


def _add_libraries(container: ContainerRoot, request: HookRequest, outcome: StepResults) -> None:
    """Add the folders of update-ldcache to the loader's cache, and the compatibility folder before them."""
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
    """Open /dev/null for each of the descriptors 0, 1 and 2 that is closed.

    Otherwise, a file of the container could get such a descriptor, and the hook would write messages to the
    file.
    """
    while (fd := posix.open("/dev/null", posix.O_RDWR | posix.O_CLOEXEC)) <= 2:
        pass
    posix.close(fd)


def _unexpected(error: Exception) -> str:
    return f"{type(error).__name__}: {error}; this is an error of cdigen-hook, please report it"

"""Read the state of kernel modules, and the configuration that prevents the loading of modules."""

from __future__ import annotations

import re
from contextlib import suppress

from cdigen.host.procfs import read_text
from cdigen.host.root import Root, shown
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_MODULES = "/sys/module"
# The kernel's loaded modules: name, size, number of users, users with a comma after each (proc_modules(5)).
_LOADED = "/proc/modules"
_COMMAND_LINE = "/proc/cmdline"
# Documentation/admin-guide/kernel-parameters.txt of the kernel, and modprobe(8), "--use-blacklist".
_REFUSAL, _BLACKLIST = "module_blacklist=", "modprobe.blacklist="
# The drivers that bind to no device with this parameter: the callers of drm_firmware_drivers_only()
# (Documentation/admin-guide/kernel-parameters.txt, "nomodeset"; amdgpu_drv.c, i915_module.c, xe_module.c).
NO_MODESET, _OBEY_NO_MODESET = "nomodeset", ("amdgpu", "i915", "nouveau", "radeon", "xe")
# modprobe.d(5): if several folders have a file with the same name, the first file applies.
_CONFIGURATION = (
    "/etc/modprobe.d",
    "/run/modprobe.d",
    "/usr/local/lib/modprobe.d",
    "/usr/lib/modprobe.d",
    "/lib/modprobe.d",
)
# The usual commands of an install line that excludes a module, with or without 'sh -c' before the command.
_NO_LOADING = re.compile(
    r"""(\S*/)?((ba|da)?sh\s+-c\s+["']?\s*(\S*/)?)?(true|false|:|exit\s+0)([\s;&|"']|$)"""
)


def kernel_name(name: str) -> str:
    """Return the kernel's spelling of the module NAME; modprobe(8) also accepts ``-`` for ``_``."""
    return name.replace("-", "_")


def module_state(host: Root, name: str) -> str:
    """Return the state of the module NAME: ``live``, ``coming``, ``going``, or "" if it is not loaded.

    The kernel reports no state for a built-in module. For such a module, the result is ``live``.
    """
    # A new Root has no cached folders. This is necessary, because a module's folder appears and disappears.
    now = Root(host.outer or "/")
    folder = f"{_MODULES}/{kernel_name(name)}"
    if not now.exists(folder):
        return ""
    try:
        return read_text(now, f"{folder}/initstate").strip()
    except OSError:
        return "live"


def refused_modules(host: Root) -> frozenset[str]:
    """Return the modules that the kernel command line forbids, in the kernel's spelling."""
    return _on_command_line(host, _REFUSAL)


@frozen
class ModuleExclusion:
    """A setting that excludes a kernel module.

    ``place`` is the kernel parameter, or the file and the line. ``command`` is the parameter, or the command
    of the line in modprobe.d(5): ``install``, ``alias`` or ``blacklist``.
    """

    place: str
    command: str

    @property
    def is_strict(self) -> bool:
        """Whether ``modprobe NAME`` fails too. The other settings apply to ``--use-blacklist`` and udev."""
        return self.command in {_REFUSAL, NO_MODESET, "install", "alias"}

    def remedy(self, module: str) -> str:
        """Return the next step that lets MODULE bind to devices again."""
        if self.command == NO_MODESET:
            return "remove nomodeset from the kernel command line and reboot"
        return f"remove {module} from {self.place}"


def module_exclusion(host: Root, name: str, kernel_names: tuple[str, ...] = ()) -> str:
    """Return the place of the first setting that excludes the module NAME, or ""."""
    found = module_exclusions(host, name, kernel_names)
    return found[0].place if found else ""


def module_exclusions(
    host: Root, name: str, kernel_names: tuple[str, ...] = ()
) -> tuple[ModuleExclusion, ...]:
    """Return the kernel parameters and the lines of modprobe.d(5) that exclude the module NAME.

    KERNEL_NAMES are further names that the module can have in the kernel.
    """
    wanted = kernel_name(name)
    found = [
        ModuleExclusion(place=f"{parameter} on the kernel command line", command=parameter)
        for parameter, names in ((_REFUSAL, {wanted, *kernel_names}), (_BLACKLIST, {wanted}))
        if names & _on_command_line(host, parameter)
    ]
    if wanted in _OBEY_NO_MODESET and NO_MODESET in _command_line(host):
        found.append(ModuleExclusion(place=f"{NO_MODESET} on the kernel command line", command=NO_MODESET))
    for path, number, row in configuration_lines(host):
        if len(row) > 1 and kernel_name(row[1]) == wanted and _is_exclusion(*row):
            found.append(ModuleExclusion(place=f"{path}:{number}", command=row[0]))
    return tuple(found)


def configuration_lines(host: Root) -> Iterator[tuple[str, int, list[str]]]:
    """Yield the lines of modprobe.d(5) as file, number of the line, and up to three words of the line."""
    files: dict[str, str] = {}
    for folder in _CONFIGURATION:
        for file in host.names(folder):
            files.setdefault(file, f"{folder}/{file}")
    for file, path in files.items():
        if file.endswith(".conf"):
            yield from ((shown(path), number, row) for number, row in _lines(host, path))


def unload_order(host: Root, *names: str) -> tuple[str, ...]:
    """Return the loaded modules in NAMES and the loaded modules that use them, in the order for rmmod(8)."""
    users: dict[str, list[str]] = {}
    with suppress(OSError):
        rows = (line.split() for line in read_text(host, _LOADED, limit=1 << 20).splitlines())
        users = {
            row[0]: [user for user in row[3].split(",") if user.strip("-")] for row in rows if len(row) > 3
        }
    found: dict[str, None] = {}
    started: set[str] = set()

    def add(name: str) -> None:
        if name in started or not host.exists(f"{_MODULES}/{name}"):
            return
        started.add(name)
        for user in users.get(name, ()):
            add(user)
        found.setdefault(name)

    for name in names:
        add(kernel_name(name))
    return tuple(found)


def _command_line(host: Root) -> list[str]:
    # The boot loader's parameters may contain tabs and line ends.
    try:
        return read_text(host, _COMMAND_LINE).split()
    except OSError:
        return []


def _on_command_line(host: Root, parameter: str) -> frozenset[str]:
    words = _command_line(host)
    lists = (word.removeprefix(parameter) for word in words if word.startswith(parameter))
    return frozenset(kernel_name(name) for names in lists for name in names.split(",") if name)


def _lines(host: Root, path: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the words of each line of a modprobe.d(5) file; a backslash continues a line."""
    try:
        lines = read_text(host, path).split("\n")
    except OSError:
        return
    text, first = "", 1
    for number, line in enumerate(lines, start=1):
        if line.endswith("\\"):
            text += f"{line[:-1]} "
            continue
        yield first, (text + line).split(maxsplit=2)
        text, first = "", number + 1


def _is_exclusion(command: str, _module: str, text: str = "") -> bool:
    """Return whether a modprobe.d(5) line excludes its module; an ``install`` line must match _NO_LOADING."""
    if command == "install":
        return _NO_LOADING.match(text) is not None and "modprobe" not in text
    return command == "blacklist" or (command == "alias" and text.strip() == "off")

"""Read the state of kernel modules, and the configuration that prevents the loading of modules."""

from __future__ import annotations

import re

from cdigen.host.procfs import read_text
from cdigen.host.root import Root, shown

_MODULES = "/sys/module"
_COMMAND_LINE = "/proc/cmdline"
# Documentation/admin-guide/kernel-parameters.txt of the kernel, and modprobe(8), "--use-blacklist".
_REFUSAL, _BLACKLIST = "module_blacklist=", "modprobe.blacklist="
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


def module_exclusion(host: Root, name: str, kernel_names: tuple[str, ...] = ()) -> str:
    """Return the kernel parameter or the modprobe.d(5) file that excludes the module NAME, or "".

    KERNEL_NAMES are further names that the module can have in the kernel.
    """
    wanted = kernel_name(name)
    for parameter, names in ((_REFUSAL, {wanted, *kernel_names}), (_BLACKLIST, {wanted})):
        if names & _on_command_line(host, parameter):
            return f"{parameter} on the kernel command line"
    files: dict[str, str] = {}
    for folder in _CONFIGURATION:
        for file in host.names(folder):
            files.setdefault(file, f"{folder}/{file}")
    for file, path in files.items():
        if file.endswith(".conf") and _excludes(host, path, wanted):
            return shown(path)
    return ""


def _on_command_line(host: Root, parameter: str) -> frozenset[str]:
    try:
        words = read_text(host, _COMMAND_LINE).split()
    except OSError:
        return frozenset()
    lists = (word.removeprefix(parameter) for word in words if word.startswith(parameter))
    return frozenset(kernel_name(name) for names in lists for name in names.split(",") if name)


def _excludes(host: Root, path: str, name: str) -> bool:
    try:
        lines = read_text(host, path).replace("\\\n", " ").splitlines()
    except OSError:
        return False
    rows = (line.split(maxsplit=2) for line in lines)
    return any(_is_exclusion(*row) for row in rows if len(row) > 1 and kernel_name(row[1]) == name)


def _is_exclusion(command: str, _module: str, text: str = "") -> bool:
    """Return whether a modprobe.d(5) line excludes its module; an ``install`` line must match _NO_LOADING."""
    if command == "install":
        return _NO_LOADING.match(text) is not None and "modprobe" not in text
    return command == "blacklist" or (command == "alias" and text.strip() == "off")

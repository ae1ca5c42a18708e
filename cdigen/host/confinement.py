"""The confinement of this process by SELinux or AppArmor: ``confinement``, and ``refusal`` for messages."""

from __future__ import annotations

from errno import EACCES, EPERM

from cdigen.host.root import reason

_LABEL = "/proc/self/attr/current"


def confinement(label: str = _LABEL) -> str:
    """Return one line about the confinement of this process by SELinux or AppArmor; "" without confinement.

    LABEL is the file with the label of this process. SELinux writes USER:ROLE:TYPE:LEVEL to the file, and
    AppArmor writes PROFILE (enforce).
    """
    try:
        with open(label, encoding="utf-8", errors="replace") as file:
            text = file.read(512).strip("\0\n ")
    except OSError:
        return ""
    if not text.isprintable():
        return ""
    if text.count(":") >= 3:
        return (
            f"SELinux runs this process as {text.split(':')[2]}: 'ausearch -m avc -ts recent' lists the "
            "refusals; a pod needs 'seLinuxOptions: {type: spc_t}', and 'podman run' needs "
            "'--security-opt label=disable'"
        )
    if text.endswith("(enforce)"):
        return f"AppArmor confines this process with {text.removesuffix('(enforce)').strip()}: see dmesg"
    return ""


def refusal(error: OSError, label: str = _LABEL) -> str:
    """Return the text of ERROR, and for EACCES and EPERM also the confinement of this process (LABEL)."""
    by = confinement(label) if error.errno in {EACCES, EPERM} else ""
    return f"{reason(error)}{by and f' ({by})'}"

"""What confines this process besides its rights: ``confinement``, and ``refusal`` for messages about that."""

from __future__ import annotations

from errno import EACCES, EPERM

from cdigen.host.root import reason

_LABEL = "/proc/self/attr/current"


def confinement(label: str = _LABEL) -> str:
    """Return in one line how SELinux or AppArmor confines this process, "" where neither does.

    LABEL is the file that has its label: USER:ROLE:TYPE:LEVEL of SELinux, or AppArmor's PROFILE (enforce).
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
            f"SELinux runs this process as {text.split(':')[2]}: 'ausearch -m avc -ts recent' says what it "
            "refused; a pod needs 'seLinuxOptions: {type: spc_t}', podman run '--security-opt label=disable'"
        )
    if text.endswith("(enforce)"):
        return f"AppArmor confines this process by {text.removesuffix('(enforce)').strip()}: see dmesg"
    return ""


def refusal(error: OSError, label: str = _LABEL) -> str:
    """Return ERROR in words, and where it is a refusal, what confines this process, by LABEL."""
    by = confinement(label) if error.errno in {EACCES, EPERM} else ""
    return f"{reason(error)}{by and f' ({by})'}"

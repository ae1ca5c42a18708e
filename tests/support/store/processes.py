"""A folder like /proc for tests of prune: `make_proc`, `table`; and a time when no view is new: `later`."""

import time
from pathlib import Path

FIRST_NAMESPACE = "pid:[4026531836]"
LINE = "36 35 98:0 {root} /mnt rw,noatime master:1 - ext4 /dev/root rw\n"
LATER = 100.0


def make_proc(tmp_path: Path) -> Path:
    """Return a /proc with process 1, another process and a zombie. No process has a view mounted."""
    folder = tmp_path / "proc"
    for pid in ("1", "20"):
        table(folder, pid, "/")
    (folder / "self/ns").mkdir(parents=True)
    (folder / "self/ns/pid").symlink_to(FIRST_NAMESPACE)
    (folder / "30").mkdir()  # process 30 has no mount table
    return folder


def table(proc: Path, pid: str, *roots: str) -> None:
    (proc / pid).mkdir(parents=True, exist_ok=True)
    (proc / pid / "mountinfo").write_text("".join(LINE.format(root=root) for root in roots))


def later() -> float:
    return time.time() + LATER

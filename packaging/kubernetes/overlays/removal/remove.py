"""remove.py HOST: remove all files of cdigen from the node with the root HOST; exits with 0 on success.

The program waits while a process of cdigen runs on the node, because that process would write the files
again. It prints a line for each removed path, and for each path that stays, with the reason.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

CONFIG = Path(__file__).with_name("config.yaml")
RUN_DIRECTORIES = ("run/cdigen", "run/cdigen-kubelet", "run/cdigen-nri")
STATE = "var/lib/cdigen"
FEATURES = "etc/kubernetes/node-feature-discovery/features.d"
# The first line of cdigen's label file, which may have any name; the name pattern of a killed writer's file.
LABELS, UNFINISHED = b"# Written by cdigen kubelet", ".cdigen-*.tmp"
# Folders of several programs: they are removed if they are empty.
SHARED = ("run/cdi", "etc/cdi")
# How long to wait for views that are too new to be removed.
VIEW_TIMEOUT_S = 90
# Sockets of a killed plugin; the kubelet removes them at its next start.
SOCKETS = ("var/lib/kubelet/device-plugins", "cdigen-*.sock")


def main(host: Path) -> int:
    """Remove all files of cdigen; returns the exit code, 1 if a file of cdigen stays."""
    wait_for_end(host)
    if command("withdraw", host=host).returncode != 0:
        return 1
    kept = views_in_use(host)
    if kept is None:
        return 1
    for view in kept:
        print(f"kept: /{STATE}/views/{view['view']}: {view['reason']}", flush=True)
    own = [host / name for name in RUN_DIRECTORIES]
    if not kept:
        own.insert(0, host / STATE)
    own += [path for path in sorted((host / FEATURES).glob("*")) if has_labels(path)]
    own += sorted((host / SOCKETS[0]).glob(SOCKETS[1]))
    failed = [path for path in own if not remove(host, path)]
    if failed:
        return 1
    for name in SHARED:
        remove_if_empty(host, host / name)
    exception = " except these views of a driver" if kept else ""
    print(f"done: nothing of cdigen is left on this node{exception}", flush=True)
    return 0


def wait_for_end(host: Path) -> None:
    """Wait until no pod and no service of the host holds the lock of a run directory."""
    printed = ""
    while held := [path for path in RUN_DIRECTORIES if is_held(host / path / "lock")]:
        paths = ", ".join(f"/{path}" for path in held)
        text = f"waiting: cdigen still runs on this node ({paths}): delete its DaemonSet, stop its services"
        if text != printed:
            print(text, flush=True)
            printed = text
        time.sleep(1)


def is_held(lock: Path) -> bool:
    """Return whether a process holds the file LOCK."""
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def command(*arguments: str, host: Path) -> subprocess.CompletedProcess[bytes]:
    """Run a command of cdigen on the node; with --json, its output is captured."""
    line = ["cdigen", *arguments, "--root", str(host), "--config", str(CONFIG)]
    return subprocess.run(line, check=False, stdout=subprocess.PIPE if "--json" in arguments else None)


def views_in_use(host: Path) -> list[dict[str, str]] | None:
    """Remove the views of a driver, and return those that stay; None: unknown, the command has failed.

    A starting container may use a view for a minute after the removal of its spec. The function waits for it,
    and prints each view with the reason of the wait once.
    """
    until = time.monotonic() + VIEW_TIMEOUT_S
    printed = set()
    while True:
        rows = json.loads(command("prune", "--json", host=host).stdout or "{}")
        if not isinstance(rows, list):
            return None
        kept = [row for row in rows if row["result"] != "removed"]
        awaited = [row for row in kept if not row["reason"].startswith("process ")]
        if time.monotonic() > until or not awaited:
            return kept
        lines = {f"waiting: /{STATE}/views/{row['view']}: {row['reason']}" for row in awaited}
        for line in sorted(lines - printed):
            print(f"{line}; at most {VIEW_TIMEOUT_S} s", flush=True)
        printed |= lines
        time.sleep(5)


def has_labels(path: Path) -> bool:
    """Return whether the file PATH has labels of cdigen; such a file is readable by all users."""
    if path.is_symlink() or not path.is_file():
        return False
    if path.match(UNFINISHED):
        return True
    try:
        with path.open("rb") as file:
            return file.read(len(LABELS)) == LABELS
    except OSError:
        return False


def remove(host: Path, path: Path) -> bool:
    """Remove a file or folder, if it exists; returns whether it is gone. Links are not followed."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.is_symlink() or path.exists():
            path.unlink()
        else:
            return True
    except OSError as error:
        print(f"failed: /{path.relative_to(host)}: {error.strerror}", flush=True)
        return False
    print(f"removed: /{path.relative_to(host)}", flush=True)
    return True


def remove_if_empty(host: Path, path: Path) -> None:
    """Remove an empty folder."""
    if path.is_symlink() or not path.is_dir():
        return
    if left := sorted(os.listdir(path)):
        print(f"kept: /{path.relative_to(host)}, which has {' '.join(left)}", flush=True)
        return
    try:
        path.rmdir()
    except OSError as error:  # the folder belongs to a host with a read-only /etc
        print(f"kept: /{path.relative_to(host)}: {error.strerror}", flush=True)
    else:
        print(f"removed: /{path.relative_to(host)}", flush=True)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

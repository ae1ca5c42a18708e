"""remove.py HOST: take from the node, whose root is at HOST, what cdigen wrote; exits 0 when that is done.

As long as a process of cdigen serves the node, it waits: what one removes, the other would write again. Every
removed path is a line of the log, and so is what stays, with the reason.
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
# How a file with labels of ours begins, whatever its name is; the name of one that a killed writer has left.
LABELS, UNFINISHED = b"# Written by cdigen kubelet", ".cdigen-*.tmp"
# Folders that others use as well: they go if they are empty.
SHARED = ("run/cdi", "etc/cdi")
# How long views are waited for that are too new to be removed.
PATIENCE_S = 90
# Sockets that a killed plugin has left; the kubelet removes them at its next start.
SOCKETS = ("var/lib/kubelet/device-plugins", "cdigen-*.sock")


def main(host: Path) -> int:
    """Remove all, and return the exit code: 1 where something stays that is no one else's."""
    wait_for_end(host)
    if command("withdraw", host=host).returncode != 0:
        return 1
    kept = views_in_use(host)
    if kept is None:
        return 1
    for view in kept:
        print(f"kept: /{STATE}/views/{view['view']}: {view['reason']}", flush=True)
    ours = [host / name for name in RUN_DIRECTORIES]
    if not kept:
        ours.insert(0, host / STATE)
    ours += [path for path in sorted((host / FEATURES).glob("*")) if has_labels(path)]
    ours += sorted((host / SOCKETS[0]).glob(SOCKETS[1]))
    failed = [path for path in ours if not remove(host, path)]
    if failed:
        return 1
    for name in SHARED:
        remove_if_empty(host, host / name)
    but = " but these views of a driver" if kept else ""
    print(f"done: nothing of cdigen is left on this node{but}", flush=True)
    return 0


def wait_for_end(host: Path) -> None:
    """Return once nobody holds the lock of a run directory, be it a pod or the host's service."""
    said = ""
    while held := [path for path in RUN_DIRECTORIES if is_held(host / path / "lock")]:
        places = ", ".join(f"/{path}" for path in held)
        text = f"waiting: cdigen still serves this node, by {places}: delete its DaemonSet, stop its services"
        if text != said:
            print(text, flush=True)
            said = text
        time.sleep(1)


def is_held(lock: Path) -> bool:
    """Tell whether a process holds the file LOCK."""
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def command(*arguments: str, host: Path) -> subprocess.CompletedProcess[bytes]:
    """Run a command of cdigen's on the node; what it prints is kept where it is asked for JSON."""
    line = ["cdigen", *arguments, "--root", str(host), "--config", str(CONFIG)]
    return subprocess.run(line, check=False, stdout=subprocess.PIPE if "--json" in arguments else None)


def views_in_use(host: Path) -> list[dict[str, str]] | None:
    """Remove the views of a driver, and return those that stay; None: nobody knows, as the command said.

    A container that is just starting may want one for a minute after its spec has gone: that is waited for.
    """
    until = time.monotonic() + PATIENCE_S
    while True:
        rows = json.loads(command("prune", "--json", host=host).stdout or "{}")
        if not isinstance(rows, list):
            return None
        kept = [row for row in rows if row["result"] != "removed"]
        if time.monotonic() > until or all(row["reason"].startswith("process ") for row in kept):
            return kept
        time.sleep(5)


def has_labels(path: Path) -> bool:
    """Tell whether the file PATH has labels that cdigen wrote, which everybody may read."""
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
    """Remove a file or folder, if it is there, and tell whether it is gone; a link is not followed."""
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
    """Remove a folder that has nothing in it."""
    if path.is_symlink() or not path.is_dir():
        return
    if left := sorted(os.listdir(path)):
        print(f"kept: /{path.relative_to(host)}, which has {' '.join(left)}", flush=True)
        return
    try:
        path.rmdir()
    except OSError as error:  # a host whose /etc is read-only brings the folder itself
        print(f"kept: /{path.relative_to(host)}: {error.strerror}", flush=True)
    else:
        print(f"removed: /{path.relative_to(host)}", flush=True)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

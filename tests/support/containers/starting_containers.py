"""Containers that start one after the other while the driver of their host is upgraded."""

import threading

from support.containers.chroot_host import DEBIAN_IMAGE, Host

LOADED = ("libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1", "libnvidia-nvvm.so.4")
REFUSAL = "unresolvable CDI devices nvidia.com/gpu=0"


class Starts:
    """Starts containers with a GPU, one after the other, until the context ends; records each result."""

    def __init__(self, host: Host, versions: tuple[str, ...], *, below: str = "/") -> None:
        """Set HOST and all VERSIONS of its driver; BELOW is the folder of the driver in containers."""
        self._host = host
        self._below = below
        self._versions = versions
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._found: list[tuple[str, str]] = []

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)

    def _work(self) -> None:
        # The script searches the name and the content of each file for a version, because the name may be
        # that of a link.
        versions = "|".join(version.replace(".", "[.]") for version in self._versions)
        script = (
            f"dlopen-all {' '.join(LOADED)} | while read -r state path; do "
            f'versions=$({{ echo "$path"; cat "$path"; }} | grep -aoE "{versions}" | sort -u); '
            'echo $state $versions "$path"; done'
        )
        run = f"podman run --rm --device nvidia.com/gpu=0 {DEBIAN_IMAGE} sh -c '{script}'"
        while not self._stop.is_set():
            done = self._host.attempt(run)
            if done.returncode == 0:
                self._found.append(self._judge(done.stdout))
            elif REFUSAL in done.stderr:
                self._found.append(("refused", ""))
            else:
                self._found.append(("wrong", done.stderr))

    def _judge(self, listed: str) -> tuple[str, str]:
        rows = [line.split() for line in listed.splitlines()]
        found = {tuple(row[1:-1]) for row in rows}
        consistent = len(rows) == len(LOADED) and len(found) == 1
        consistent = consistent and all(row[0] == "ok" and row[-1].startswith(self._below) for row in rows)
        return ("driver", "") if consistent and len(found.pop()) == 1 else ("wrong", listed)

    def counts(self) -> dict[str, int]:
        """Return the number of starts by result: driver, refused, wrong."""
        ends = [end for end, _ in self._found]
        return {end: ends.count(end) for end in dict.fromkeys(ends)}

    def wrong(self) -> list[str]:
        """Return the details of each wrong start."""
        return [text for end, text in self._found if end == "wrong"]

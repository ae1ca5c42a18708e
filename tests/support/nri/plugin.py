"""`cdigen nri` as a process (`plugin`), on a fake host (`host`) on which a double of a runtime listens.

`Host.runtime` is the double on the plugin's next connection. The helpers wait for events and never for a
fixed time, so that only a failing test waits long.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.abilities import WARNINGS, tool
from support.command.fixtures import COVERAGE
from support.daemon import http_client
from support.json_output import validator
from support.nri.host import content
from support.nri.runtime import Rejected, Runtime, SocketTransport, container, pod
from support.paths import REPOSITORY
from support.waiting import PATIENCE_S, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

# The timeout of a request. After half of it, the plugin refuses the container. On a busy machine, no step
# takes so long.
REQUEST_S = 40.0
INJECTED_ANNOTATION = "cdigen.dev/injected"
INJECTED_INTO_ANNOTATION = "cdigen.dev/injected-into"
NAME = "nvidia.com-gpu.json"
VISIBLE = "NVIDIA_VISIBLE_DEVICES"

# The names and versions that runtimes report, and their versions of NRI.
DROPS_06: dict[str, Any] = {"name": "containerd", "version": "1.7.24~ds1", "nri": (0, 6)}
INJECTS_08: dict[str, Any] = {"name": "containerd", "version": "2.1.9+unknown", "nri": (0, 8)}
INJECTS_10: dict[str, Any] = {"name": "cri-o", "version": "1.34.0", "nri": (0, 10)}
INJECTS_12: dict[str, Any] = {"name": "containerd", "version": "v2.3.4", "nri": (0, 12)}


class Host:
    """A host below a folder: its specs, its configuration, and the socket where plugins connect."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for folder in (
            "etc/cdi",
            "etc/cdigen",
            "run/cdi",
            "run/nri",
            "run/cdigen",
            "sys/module/nvidia",
            "var",
        ):
            (root / folder).mkdir(parents=True)
        # The usual link of a host. It is valid only if it is resolved below the root.
        (root / "var/run").symlink_to("/run")
        self.specs = root / "run/cdi"
        self.run_dir = root / "run/cdigen-nri"
        self.socket = root / "run/nri/nri.sock"
        self.inventory = root / "run/cdigen/inventory.json"
        self._listener: socket.socket | None = None
        self._connections: list[socket.socket] = []
        self.configure()

    def configure(self, *, namespaces: Sequence[str] = ("ml",), text: str = "", **nri: object) -> None:
        """Write a configuration: all kinds for NAMESPACES, and the keys NRI of `nri`; or TEXT, if any."""
        settings = {"nri": {"allow": [{"namespaces": list(namespaces), "kinds": ["*"]}], **nri}}
        put(self.root / "etc/cdigen/config.yaml", text or json.dumps(settings))

    def write_spec(
        self,
        names: Iterable[str] = ("0", "1", "all"),
        *,
        kind: str = "nvidia.com/gpu",
        file: str = NAME,
        folder: str = "run/cdi",
        **edits: object,
    ) -> None:
        """Write a spec with devices called NAMES by a rename; EDITS are for all devices."""
        put(self.root / folder / file, json.dumps(spec(names, kind=kind, **edits)))

    def write_inventory(self, driver: str = "550.163.01", data: bytes | None = None) -> None:
        """Set the loaded module to DRIVER, and write an inventory of the driver 550.163.01, or DATA."""
        put(self.root / "sys/module/nvidia/version", f"{driver}\n")
        put(self.inventory, content() if data is None else data)

    def make_null(self) -> None:
        """Make /dev/null, which is the host's node of all devices of `spec`."""
        (self.root / "dev").mkdir()
        os.mknod(self.root / "dev/null", stat.S_IFCHR | 0o666, os.makedev(1, 3))

    def listen(self, backlog: int = 8) -> None:
        """Listen for plugins."""
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(_short(self.socket))
        self._listener.listen(backlog)

    def stop_listening(self) -> None:
        """Stop listening, and remove the socket."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
            self.socket.unlink()

    def accept(self) -> socket.socket:
        """Return the plugin's next connection."""
        if self._listener is None:
            self.listen()
        assert self._listener is not None
        self._listener.settimeout(0.15)
        until_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < until_s:
            try:
                connection = self._listener.accept()[0]
            except TimeoutError:
                # After short connections, a plugin waits for seconds, or for a change of its socket.
                self.socket.chmod(0o700)
                continue
            self._connections.append(connection)
            if not _is_left(connection):
                return connection
        raise TimeoutError("the plugin does not connect")

    def close(self) -> None:
        """Close the listening socket and all connections."""
        self.stop_listening()
        for connection in self._connections:
            connection.close()

    def runtime(
        self,
        pods: Sequence[Any] = (),
        containers: Sequence[Any] = (),
        *,
        reply_first: bool = True,
        **identity: Any,
    ) -> Runtime:
        """Return a runtime on the plugin's next connection, after registration, with PODS and CONTAINERS."""
        made = self.unregistered_runtime(**identity)
        made.start(reply_first=reply_first)
        made.synchronize(pods, containers)
        return made

    def unregistered_runtime(self, **identity: Any) -> Runtime:
        """Return a runtime on the plugin's next connection, before any message."""
        options = {
            "request_timeout_s": REQUEST_S,
            "registration_timeout_s": PATIENCE_S,
            **INJECTS_08,
            **identity,
        }
        return Runtime(SocketTransport(self.accept()), **options)


class Plugin:
    """A real `cdigen nri`, with its log, status and metrics."""

    def __init__(self, host: Host, process: subprocess.Popen[bytes], log: Path) -> None:
        self.host = host
        self.process = process
        self._log = log

    @property
    def text(self) -> str:
        """The text of the log."""
        return self._log.read_text()

    def lines(self, event: str = "") -> list[dict[str, Any]]:
        """Return the complete log lines, or only those with EVENT; each line must be JSON."""
        found = [json.loads(line) for line in self.text.splitlines(keepends=True) if line.endswith("\n")]
        return [line for line in found if event in ("", line["event"])]

    @property
    def status(self) -> dict[str, Any]:
        """The content of status.json, which must be complete; empty before this process has written it."""
        try:
            found: dict[str, Any] = json.loads((self.host.run_dir / "status.json").read_bytes())
        except FileNotFoundError:
            return {}
        return found if found["pid"] == self.process.pid else {}

    @property
    def state(self) -> str:
        return str(self.status.get("state", ""))

    def sees(self, truth: Callable[[], object]) -> None:
        """Wait until TRUTH returns a true value."""

        def holds() -> object:
            assert self.process.poll() is None, (
                f"the plugin ended with {self.process.returncode}: {self.text}"
            )
            return truth()

        assert until(holds), f"{json.dumps(self.status)}\n{self.text}"

    def get(self, target: str) -> tuple[int, str]:
        """Return code and body of its HTTP response; before it serves HTTP, the code is 0."""
        # An empty response has no code: IndexError.
        with suppress(FileNotFoundError, ConnectionError, IndexError):
            code, _, body = http_client.get(_short(self.host.run_dir / "http.sock"), target)
            return code, body.decode()
        return 0, ""

    def metric(self, row: str) -> float:
        """Return the value of the metric ROW (name and labels), which must exist."""
        text = self.get("/metrics")[1]
        rows = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        return float(rows[row])

    def serves(self) -> None:
        """Wait until the plugin responds over HTTP, which is the end of its start."""
        self.sees(lambda: self.get("/healthz")[0] == 200)

    def resident_kb(self) -> int:
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(text.partition("VmRSS:")[2].split()[0])

    def processor_s(self) -> float:
        """Return the used processor time; the kernel counts in hundredths of a second."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send the signal NUMBER; return the exit code of the plugin."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)


@contextmanager
def host() -> Iterator[Host]:
    """Make a host in a folder whose path is short enough for sockets, with a spec of two GPUs."""
    with tempfile.TemporaryDirectory(prefix="cdigen-") as folder:
        made = Host(Path(folder, "host"))
        made.write_spec()
        try:
            yield made
        finally:
            made.close()


@contextmanager
def plugin(
    on: Host,
    *options: str,
    listen: bool = True,
    environment: Mapping[str, str] | None = None,
    before: Sequence[str] = (),
    **more: Any,
) -> Iterator[Plugin]:
    """Start the plugin on the host ON, which listens; kill the plugin in the end if it still runs.

    ENVIRONMENT replaces its environment. BEFORE is a command that starts it. MORE has arguments of Popen.
    """
    if listen and not on.socket.exists():
        on.listen()
    variables = os.environ if environment is None else environment
    with tempfile.TemporaryDirectory(prefix="cdigen-") as folder:
        log = Path(folder, "log")
        with log.open("wb") as stderr:
            process = subprocess.Popen(
                # The kernel kills the plugin when the tests end or are killed.
                [
                    tool("setpriv", "util-linux"),
                    "--pdeathsig",
                    "KILL",
                    *before,
                    sys.executable,
                    "-m",
                    "cdigen",
                    "nri",
                    "--root",
                    str(on.root),
                    "-v",
                    *options,
                ],
                stdout=stderr,
                stderr=stderr,
                cwd=REPOSITORY,
                env={"PYTHONWARNINGS": WARNINGS, **COVERAGE, **variables},
                **{"stdin": subprocess.DEVNULL, **more},
            )
        try:
            plugin = Plugin(on, process, log)
            yield plugin
            if status := plugin.status:
                validator("nri-status").validate(status)
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            process.wait()


def put(path: Path, text: str | bytes) -> None:
    """Write a file by a rename."""
    new = path.with_name(f".{path.name}.new")
    new.write_bytes(text.encode() if isinstance(text, str) else text)
    new.rename(path)


def spec(names: Iterable[str], *, kind: str = "nvidia.com/gpu", **edits: object) -> dict[str, Any]:
    """Return a spec: each device has /dev/NAME, which is this machine's /dev/null."""
    devices = [
        {"name": name, "containerEdits": {"deviceNodes": [{"path": f"/dev/{name}", "hostPath": "/dev/null"}]}}
        for name in names
    ]
    common = {"env": [f"{VISIBLE}=void"], **edits}
    return {"cdiVersion": "0.5.0", "kind": kind, "devices": devices, "containerEdits": common}


def gpu_request(visible: str | None, *more: str, **fields: Any) -> tuple[Any, Any]:
    """Return a pod whose requests are permitted, and its container with the variable VISIBLE."""
    env = ["PATH=/usr/bin", *([f"{VISIBLE}={visible}"] if visible is not None else []), *more]
    return pod(namespace="ml", **fields), container(env=env)


def gets_soon(runtime: Runtime, device: str, *arguments: str) -> None:
    """Wait until a container with the ARGUMENTS of `gpu_request` gets DEVICE and no other device.

    Until then the plugin may reject containers.
    """

    def gets() -> bool:
        with suppress(Rejected):
            assert cdi_devices(runtime.create(*gpu_request(*arguments))) == [device]
            return True
        return False

    assert until(gets), f"no container gets {device}"


def cdi_devices(adjustment: Any) -> list[str]:
    """Return the CDI devices in ADJUSTMENT."""
    return [device.name for device in adjustment.cdi_devices]


def _is_left(connection: socket.socket) -> bool:
    """Return whether the plugin has closed CONNECTION already (after 30 s without a registration)."""
    poll = select.poll()
    poll.register(connection, select.POLLRDHUP)
    return bool(poll.poll(0))


def _short(path: Path) -> str:
    assert len(os.fsencode(path)) <= 107, f"{path} is too long for a socket: set TMPDIR"
    return str(path)

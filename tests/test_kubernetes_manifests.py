"""The files of packaging/kubernetes without a cluster: configurations, versions, removal, metrics."""

from __future__ import annotations

import fcntl
import os
import re
import socket
import socketserver
import subprocess
import sys
import threading
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from support.kubernetes.certificates import made
from support.paths import REPOSITORY
from support.waiting import until

from cdigen import __version__
from cdigen.kubeapi.credentials import from_kubeconfig
from cdigen.kubelet.labels.label_file import content

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.command.fixtures import Run

FOLDER = REPOSITORY / "packaging/kubernetes"
CONFIGS = sorted(FOLDER.glob("*/config.yaml")) + sorted(FOLDER.glob("overlays/*/config.yaml"))
MANIFESTS = sorted(FOLDER.glob("**/*.yaml"))
KUSTOMIZATIONS = sorted(FOLDER.glob("**/kustomization.yaml"))


def loaded(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.parent.name)
def test_a_configuration_is_valid(cdigen: Run, path: Path) -> None:
    done = cdigen("config", "check", "--config", path)
    assert (done.code, done.out) == (0, ""), done.err


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.parent.name)
def test_a_configuration_includes_the_base_which_generates_neither_views_nor_hooks(path: Path) -> None:
    base = loaded(FOLDER / "base/config.yaml")
    if path.parent.name != "removal":
        assert {key: loaded(path)[key] for key in base} == base
    assert base["profiles"] == [{"name": "default", "class": "gpu", "layout": "files", "hook": "none"}]


def test_images_have_the_tag_of_this_version() -> None:
    tags = {image["newTag"] for path in KUSTOMIZATIONS for image in loaded(path).get("images", ())}
    assert tags == {__version__}


def test_pods_run_on_all_nodes_of_nvidias_chart_including_boards_without_a_pci_gpu() -> None:
    pod = loaded(FOLDER / "base/daemonset.yaml")["spec"]["template"]["spec"]
    (terms,) = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"].values()
    # deployments/helm/nvidia-device-plugin/values.yaml of k8s-device-plugin 0.20
    assert {
        "feature.node.kubernetes.io/pci-10de.present",
        "feature.node.kubernetes.io/cpu-model.vendor_id",
        "nvidia.com/gpu.present",
    } <= {each["matchExpressions"][0]["key"] for each in terms}


def test_every_component_is_used_by_an_overlay_or_named_in_the_documentation() -> None:
    used = {Path(name).name for path in KUSTOMIZATIONS for name in loaded(path).get("components", ())}
    used |= set(
        re.findall(r"components/([\w-]+)", (REPOSITORY / "docs/how-to/kubernetes/daemonset.md").read_text())
    )
    assert used == {path.name for path in (FOLDER / "components").iterdir()}


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: str(path.relative_to(FOLDER)))
def test_no_file_has_an_anchor_which_kubectl_1_21_to_1_23_reject(path: Path) -> None:
    # kubernetes/kubectl#1043, kustomize#4747
    found = [type(token).__name__ for token in yaml.scan(path.read_text())]
    assert not {"AnchorToken", "AliasToken"} & set(found)


def test_probes_are_frequent_at_the_start_and_rare_later() -> None:
    pod = loaded(FOLDER / "base/daemonset.yaml")["spec"]["template"]["spec"]
    for container in pod["containers"]:
        starts, ready = container["startupProbe"], container["readinessProbe"]
        assert starts["exec"] == ready["exec"]
        # The container waits a month for a driver without a restart.
        assert (starts["periodSeconds"], starts["failureThreshold"] > 31 * 86400) == (1, True)
        assert min(ready["periodSeconds"], container["livenessProbe"]["periodSeconds"]) >= 15


def test_cdigen_reads_the_kubeconfig_of_the_pod(tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").write_bytes((FOLDER / "components/shared-memory/kubeconfig").read_bytes())
    made(tmp_path, "ca")
    (tmp_path / "token").write_text("abc\n")
    server = from_kubeconfig(str(tmp_path / "kubeconfig"))
    assert (server.host, server.port, server.token()) == ("kubernetes.default.svc", 443, "abc")
    assert server.tls


# The removal from a node.

OWN_FOLDERS = ("run/cdi", "etc/cdi", "run/cdigen", "run/cdigen-kubelet", "run/cdigen-nri", "var/lib/cdigen")


@pytest.fixture
def node(host: Path, cdigen: Run) -> Path:
    """Return the root of a node with the files that cdigen's DaemonSet leaves."""
    for name in (*OWN_FOLDERS[1:5], "var/lib/kubelet/device-plugins"):
        (host / name).mkdir(parents=True)
        (host / name / "lock").touch()
    (host / "etc/cdi/lock").unlink()
    features = host / "etc/kubernetes/node-feature-discovery/features.d"
    features.mkdir(parents=True)
    # 'kubelet: {labels}' permits any file name; the third file is the temporary file of a killed writer.
    for name in ("cdigen", "gpus", f".cdigen-cdigen.7.{'a' * 8}.tmp"):
        (features / name).write_bytes(content((("nvidia.com/gpu.count", "2"),), 0))
    (features / "others").write_text("nvidia.com/gpu.count=2\n")
    (features / "link").symlink_to("gpus")
    os.mkfifo(features / "fifo")
    plugins = host / "var/lib/kubelet/device-plugins"
    (plugins / "lock").unlink()
    for name in ("cdigen-gpu-1.sock", "kubelet.sock"):
        (plugins / name).touch()
    done = cdigen("generate", "--write", "--root", host, "--config", FOLDER / "base/config.yaml")
    assert done.code == 0, done.err
    assert os.listdir(host / "run/cdi") == ["nvidia.com-gpu.json"]
    return host


def start(node: Path, tmp_path: Path) -> subprocess.Popen[str]:
    """Start remove.py as in its container; ``cdigen`` is in PATH."""
    program = tmp_path / "bin/cdigen"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m cdigen "$@"\n')
    program.chmod(0o755)
    return subprocess.Popen(
        [sys.executable, "-I", "-B", FOLDER / "overlays/removal/remove.py", node],
        env={"PATH": f"{program.parent}:{os.environ['PATH']}", "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def removed(node: Path, tmp_path: Path) -> tuple[int, str]:
    """Run remove.py; return its exit status and its output."""
    process = start(node, tmp_path)
    printed, _ = process.communicate(timeout=60)
    return process.returncode, printed


def files(node: Path, *folders: str) -> set[str]:
    found = (path for folder in folders for path in (node / folder).glob("**/*"))
    return {str(path.relative_to(node)) for path in found if not path.is_dir()}


def test_all_files_of_cdigen_are_removed_and_other_files_stay(node: Path, tmp_path: Path) -> None:
    code, output = removed(node, tmp_path)
    assert code == 0, output
    assert output.splitlines()[-1] == "done: nothing of cdigen is left on this node"
    assert files(node, "run", "var/lib/cdigen", "var/lib/kubelet", "etc/kubernetes", "etc/cdi") == {
        *(f"etc/kubernetes/node-feature-discovery/features.d/{name}" for name in ("fifo", "link", "others")),
        "var/lib/kubelet/device-plugins/kubelet.sock",
    }
    for name in OWN_FOLDERS:
        assert not (node / name).exists(), output
        assert f"removed: /{name}\n" in output


def test_a_second_run_removes_nothing(node: Path, tmp_path: Path) -> None:
    removed(node, tmp_path)
    code, output = removed(node, tmp_path)
    assert (code, "removed" in output) == (0, False)


def test_specs_of_other_programs_stay_with_their_folders(node: Path, tmp_path: Path) -> None:
    (node / "run/cdi/others.json").write_text("{}")
    (node / "etc/cdi/others.yaml").write_text("{}")
    _, output = removed(node, tmp_path)
    assert files(node, "run", "etc/cdi") == {"run/cdi/others.json", "etc/cdi/others.yaml"}
    assert "kept: /run/cdi, which has others.json\n" in output


def test_the_removal_waits_while_cdigen_runs_on_the_node(node: Path, tmp_path: Path) -> None:
    with (node / "run/cdigen-nri/lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = start(node, tmp_path)
        assert process.stdout
        assert process.stdout.readline().startswith(
            "waiting: cdigen still runs on this node (/run/cdigen-nri): "
        )
        assert (node / "run/cdi/nvidia.com-gpu.json").exists()
        assert process.poll() is None
    assert until(lambda: process.poll() == 0, 60)
    process.communicate()
    assert not (node / "run/cdi").exists()


def test_the_removal_names_each_view_that_it_waits_for_and_the_reason(node: Path, tmp_path: Path) -> None:
    view = node / "var/lib/cdigen/views/nvidia-0123456789abcdef"
    view.mkdir(parents=True)
    process = start(node, tmp_path)
    assert process.stdout
    line = next(each for each in process.stdout if each.startswith("waiting: "))
    assert line == (
        f"waiting: /{view.relative_to(node)}: it was made or requested less than 60 s ago; at most 90 s\n"
    )
    for path in (view, node / "run/cdi", node / "etc/cdi"):
        os.utime(path, (0, 0))
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert not view.exists()
    assert output.splitlines()[-1] == "done: nothing of cdigen is left on this node"


def test_views_stay_if_it_is_unknown_whether_they_are_used(node: Path, tmp_path: Path) -> None:
    view = node / "var/lib/cdigen/views/none"
    view.mkdir(parents=True)
    view.parent.chmod(0o777)  # prune refuses a folder that other users may write to
    code, output = removed(node, tmp_path)
    assert (code, view.is_dir()) == (1, True), output
    assert output.splitlines()[-1].endswith(f"chmod go-w {view.parent}'"), output


def test_a_failed_removal_is_reported_and_other_removals_continue(node: Path, tmp_path: Path) -> None:
    features = node / "etc/kubernetes/node-feature-discovery/features.d"
    with mounted(features), mounted(node / "etc/cdi"):
        code, output = removed(node, tmp_path)
        assert code == 1, output
        assert f"failed: /{features.relative_to(node)}/cdigen: Read-only file system\n" in output
        assert not (node / "run/cdigen").exists()
        subprocess.run(["mount", "--options", "remount,bind,rw", features], check=True)
        code, output = removed(node, tmp_path)
        assert code == 0, output
        assert "kept: /etc/cdi: Device or resource busy\n" in output


@contextmanager
def mounted(folder: Path) -> Iterator[None]:
    """Mount FOLDER on itself, read-only."""
    subprocess.run(["mount", "--bind", folder, folder], check=True)
    try:
        subprocess.run(["mount", "--options", "remount,bind,ro", folder], check=True)
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


# The metrics of the three programs on one port.


@pytest.fixture
def served(tmp_path: Path) -> Iterator[int]:
    """Run the metrics server for one running program; yield the server's port."""
    (tmp_path / "cdigen").mkdir()
    with socketserver.ThreadingUnixStreamServer(str(tmp_path / "cdigen/http.sock"), Program) as program:
        threading.Thread(target=program.serve_forever, daemon=True).start()
        program_file = FOLDER / "components/metrics/metrics.py"
        line: list[str | Path] = [sys.executable, "-I", "-S", "-B", program_file, "0", tmp_path]
        with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout
            yield int(process.stdout.readline().split()[-1])
            process.kill()
        program.shutdown()


class Program(BaseHTTPRequestHandler):
    """A program of a node, which responds with the requested path."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(f"requested 1 # {self.path}\n".encode())

    def log_message(self, *arguments: object) -> None:
        pass


def get(port: int, path: str) -> tuple[int, str | None, bytes]:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    with closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type"), answer.read()


def test_a_scrape_reads_only_the_path_metrics_of_a_program(served: int) -> None:
    assert get(served, "/daemon") == (200, "text/plain; version=0.0.4", b"requested 1 # /metrics\n")
    assert get(served, "/daemon?x=/page.json")[2] == b"requested 1 # /metrics\n"
    assert get(served, "/daemon/page.json")[0] == 404


def test_a_scrape_of_a_program_that_does_not_run_returns_status_503(served: int) -> None:
    status, _, output = get(served, "/nri")
    assert status == 503
    assert b"cdigen-nri/http.sock: [Errno 2]" in output
    assert get(served, "/daemon")[0] == 200


def test_an_idle_connection_does_not_block_a_scrape(served: int) -> None:
    with socket.create_connection(("127.0.0.1", served)):
        assert get(served, "/daemon")[0] == 200


def test_connections_above_the_limit_are_closed_at_once_and_a_later_scrape_succeeds(served: int) -> None:
    with ExitStack() as stack:
        idle = [stack.enter_context(socket.create_connection(("127.0.0.1", served))) for _ in range(40)]
        for each in idle[8:]:
            each.settimeout(60)
            assert each.recv(1) == b""  # closed at once
        idle[0].settimeout(0.1)
        with pytest.raises(TimeoutError):
            idle[0].recv(1)
    assert until(lambda: scraped(served))


def scraped(port: int) -> bool:
    try:
        return get(port, "/daemon")[0] == 200
    except (OSError, HTTPException):
        return False

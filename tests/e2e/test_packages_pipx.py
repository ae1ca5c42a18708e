"""The wheel on a clean Debian 13, by its own systemd: pipx, `cdigen install-service`, an upgrade, and back.

The host has Debian's pipx and no network: the wheels of the lock lie in a folder. Its tests are one after the
other the life of one installation.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.containers.booted_host import GpuHost, eventually, gpu_host, locked_wheels, status, troubles
from support.containers.chroot_host import DEBIAN_IMAGE
from support.containers.starting_containers import LOADED, REFUSAL, Starts
from support.installation.wheels import build
from support.paths import REPOSITORY

from cdigen import __version__

pytestmark = pytest.mark.e2e

DRIVER = "550.163.01"
NEXT = f"{__version__}.post1"
PIPX = "PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels PIPX_HOME=/opt/pipx PIPX_BIN_DIR=/usr/local/bin pipx"
VENV = "/opt/pipx/venvs/cdigen"
SPEC = "/run/cdi/nvidia.com-gpu.json"
RUN = f"podman run --rm --device nvidia.com/gpu=0 {DEBIAN_IMAGE}"
# What programs of the host write while nothing of cdigen does.
OTHERS = (
    "/var/log",
    "/var/lib/containers",
    "/var/lib/systemd",
    "/var/cache",
    "/var/tmp",
    "/tmp",
    "/root",
    "/.cache",
)
# Ansible with its requirements, and the pip to which pipx updates its own.
# pip rejects the list if a name is missing.
HOST_PACKAGES = (
    "ansible-core",
    "cffi",
    "cryptography",
    "jinja2",
    "markupsafe",
    "packaging",
    "pip",
    "pycparser",
    "pyyaml",
    "resolvelib",
)
DEV_LOCK = REPOSITORY / "requirements-dev.lock"
# Kept on purpose, as docs/operations.md says.
KEPT = "/var/lib/cdigen"


def put_wheels(root: Path) -> None:
    """Put the wheels of this version, of the next one and of all that they need into /wheels of ROOT."""
    locked_wheels(root)
    entry = rf"^(?:{'|'.join(HOST_PACKAGES)})==(?:.*\\\n)+.*\n"
    lock = root.parent / "hosts.lock"
    lock.write_text("".join(re.findall(entry, DEV_LOCK.read_text(), flags=re.MULTILINE)))
    wanted = ("--python-version=3.13", "--only-binary=:all:", "--require-hashes", "--requirement", str(lock))
    pip = [sys.executable, "-m", "pip", "--quiet", "download", "--dest", str(root / "wheels")]
    subprocess.run([*pip, *wanted], check=True, stdin=subprocess.DEVNULL)
    build("wheel", root / "wheels")
    sources = root.parent / "next"
    for name in ("cdigen", "schemas", "etc"):
        shutil.copytree(REPOSITORY / name, sources / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, sources)
    version = sources / "cdigen/__init__.py"
    version.write_text(version.read_text().replace(f'"{__version__}"', f'"{NEXT}"'))
    build("wheel", root / "wheels", sources=sources)


@pytest.fixture(scope="module")
def gpus(cache: Path, images: Path) -> Iterator[GpuHost]:
    with gpu_host(cache / "host-trixie", DRIVER, images=images, install=put_wheels) as found:
        yield found


@pytest.fixture(scope="module")
def before(gpus: GpuHost) -> set[str]:
    """Return every file and folder of the host before anything of cdigen was installed."""
    return files(gpus)


def files(gpus: GpuHost) -> set[str]:
    listed = gpus.host.run("find / -xdev -print").splitlines()
    return {path for path in listed if not path.startswith(OTHERS)}


def installed(gpus: GpuHost, *options: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(gpus.host.run(f"cdigen install-service --json {' '.join(options)}"))
    return told


def is_ready(gpus: GpuHost) -> bool:
    return {"nvidia": "ready"}.items() <= {
        row["vendor"]: row["state"] for row in status(gpus)["vendors"]
    }.items()


def assert_a_container_gets_the_driver(gpus: GpuHost) -> None:
    rows = gpus.host.run(f"{RUN} dlopen-all {' '.join(LOADED)}").splitlines()
    assert [row for row in rows if not row.startswith("ok /usr/local/nvidia/lib64/")] == []
    assert len(rows) == len(LOADED)


def test_two_commands_give_containers_the_gpu(gpus: GpuHost, before: set[str]) -> None:
    assert not [
        path for path in before if "cdigen" in path and not path.startswith(("/wheels", "/etc/systemd"))
    ]
    gpus.host.run(f"{PIPX} install /wheels/cdigen-{__version__}-*.whl")
    told = installed(gpus)
    assert (told["changed"], told["service"], told["left"]) == (True, "active", [])
    assert told["command"] == f"{VENV}/bin/cdigen"
    assert eventually(lambda: is_ready(gpus))
    assert gpus.host.run("systemctl is-enabled cdigen") == "enabled\n"
    assert_a_container_gets_the_driver(gpus)
    assert troubles(gpus) == []


def test_a_second_run_changes_nothing_and_the_daemon_goes_on(gpus: GpuHost) -> None:
    process = gpus.host.run("systemctl show --property=MainPID cdigen")
    told = installed(gpus)
    assert (told["changed"], told["service"]) == (False, "active")
    assert gpus.host.run("systemctl show --property=MainPID cdigen") == process


def test_the_plugin_runs_by_its_unit_which_sees_no_homes(gpus: GpuHost) -> None:
    gpus.host.run("systemctl start cdigen-nri && systemctl is-active cdigen-nri")
    gpus.host.run("systemctl stop cdigen-nri")


def test_the_kubelets_plugins_say_that_grpcio_is_missing_and_run_with_it(gpus: GpuHost) -> None:
    gpus.host.run("! systemctl start cdigen-kubelet")
    said = gpus.host.run("journalctl --unit=cdigen-kubelet --output=cat")
    assert "pipx inject cdigen grpcio" in said
    assert "Traceback" not in said
    gpus.host.run(f"{PIPX} inject cdigen grpcio")
    gpus.host.run("systemctl start cdigen-kubelet && systemctl is-active cdigen-kubelet")
    gpus.host.run("systemctl stop cdigen-kubelet")


def test_man_pages_and_completions_are_where_debian_looks_for_them(gpus: GpuHost) -> None:
    gpus.host.run("test -e /usr/share/man/man8/cdigen-install-service.8")
    gpus.host.run("test -e /usr/share/bash-completion/completions/cdigen")


def test_a_cdigen_below_roots_home_is_refused_with_the_next_step(gpus: GpuHost) -> None:
    gpus.host.run(f"mkdir -p /root/.local && cp --archive {VENV} /root/.local/venv")
    done = gpus.host.attempt("/root/.local/venv/bin/python -m cdigen install-service")
    gpus.host.run("rm -r /root/.local/venv")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "services see no homes" in line
    assert "PIPX_HOME=/opt/pipx PIPX_BIN_DIR=/usr/local/bin pipx install" in line


def test_without_systemd_files_are_put_and_the_step_that_is_left_is_said(gpus: GpuHost) -> None:
    told = json.loads(
        gpus.host.run(
            "unshare --mount sh -c 'mount -t tmpfs none /run/systemd; cdigen install-service --json'"
        )
    )
    assert (told["service"], told["left"]) == (
        "unknown",
        ["systemctl daemon-reload && systemctl enable --now cdigen"],
    )


def test_an_upgrade_breaks_no_container_that_starts_meanwhile(gpus: GpuHost) -> None:
    starts = Starts(gpus.host, gpus.versions)
    with starts:
        gpus.host.run(f"{PIPX} install --force /wheels/cdigen-{NEXT}-*.whl")
        told = installed(gpus)
        assert eventually(lambda: status(gpus).get("version") == NEXT and is_ready(gpus))
    print(f"from {__version__} to {NEXT}: {starts.counts()}")
    assert (told["changed"], told["service"]) == (True, "active")
    assert starts.wrong() == []
    assert set(starts.counts()) == {"driver"}
    assert_a_container_gets_the_driver(gpus)


def test_removed_nothing_is_left_and_a_start_has_the_runtimes_clear_refusal(
    gpus: GpuHost, before: set[str]
) -> None:
    told = installed(gpus, "--remove")
    assert (told["changed"], told["specs"]) == (True, [])
    gpus.host.run(f"{PIPX} uninstall cdigen")
    refused = gpus.host.attempt(f"{RUN} true")
    assert refused.returncode != 0
    assert REFUSAL in refused.stderr
    left = {path for path in files(gpus) - before if not path.startswith((KEPT, "/opt/pipx"))}
    assert left == set()
    assert before - files(gpus) == set()
    assert gpus.host.run("systemctl list-units --all --plain --no-legend 'cdigen*'") == ""


def test_where_usr_is_read_only_another_prefix_is_named_and_works(gpus: GpuHost) -> None:
    gpus.host.run(f"{PIPX} install /wheels/cdigen-{__version__}-*.whl")
    script = (
        "mount --bind /usr/local /usr/local; mount --rbind /usr /usr; mount -o remount,bind,ro /usr; "
        "cdigen install-service{}"
    )
    refused = gpus.host.attempt(f"unshare --mount sh -c '{script.format('')}'")
    assert refused.returncode == 5
    assert (
        "read-only, so nothing was installed; 'cdigen install-service --prefix /usr/local'" in refused.stderr
    )
    gpus.host.run(f"unshare --mount sh -c '{script.format(' --prefix /usr/local')}'")
    assert eventually(lambda: is_ready(gpus))
    assert "/usr/local/libexec/cdigen/cdigen-hook" in gpus.host.run(f"cat {SPEC}")
    assert_a_container_gets_the_driver(gpus)
    installed(gpus, "--prefix /usr/local", "--remove")
    gpus.host.run(f"{PIPX} uninstall cdigen")
    assert REFUSAL in gpus.host.attempt(f"{RUN} true").stderr


def played(gpus: GpuHost) -> str:
    """Run the example's playbook on the host, and return what Ansible counts."""
    variables = f"wheel=/wheels/cdigen-{__version__}-py3-none-any.whl ansible_become=false"
    settings = "PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels"
    command = (
        f"ansible-playbook --inventory localhost, --connection local --extra-vars '{variables}' /cdigen.yml"
    )
    recap = gpus.host.run(f"{settings} {command}", timeout_s=180).splitlines()[-2:]
    return next(line for line in recap if line.startswith("localhost"))


def test_a_playbook_installs_all_of_it_and_its_second_run_changes_nothing(gpus: GpuHost) -> None:
    shutil.copy(REPOSITORY / "examples/ansible/cdigen.yml", gpus.root)
    gpus.host.run(f"{PIPX} install ansible-core", timeout_s=180)
    first, second = (dict(word.split("=") for word in played(gpus).split()[2:]) for _ in range(2))
    assert (first["failed"], first["changed"]) == ("0", "2")
    assert (second["failed"], second["changed"]) == ("0", "0")
    assert_a_container_gets_the_driver(gpus)

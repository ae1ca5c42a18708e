"""The wheel is installed with pipx and `cdigen install-service`, upgraded and removed on a clean Debian 13.

The host has systemd, Debian's pipx and no network. A folder contains the wheels of the lock file. The tests
run in order on one installation.
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
# Files that other programs of the host write.
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
# Ansible with its requirements, and pip, which pipx updates. pip rejects the list if a name is missing.
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
# Views stay if cdigen cannot read all processes of the machine.
STATE, KEPT = "/var/lib/cdigen", "/var/lib/cdigen/views"
DEV_LOCK = REPOSITORY / "requirements-dev.lock"


def put_wheels(root: Path) -> None:
    """Put the wheels of this version, of the next version and of their requirements into /wheels of ROOT."""
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
    """Return every file and folder of the host before the installation of cdigen."""
    return files(gpus)


def files(gpus: GpuHost) -> set[str]:
    listed = gpus.host.run("find / -xdev -print").splitlines()
    return {path for path in listed if not path.startswith(OTHERS)}


def installed(gpus: GpuHost, *options: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(gpus.host.run(f"cdigen install-service --json {' '.join(options)}"))
    return report


def is_ready(gpus: GpuHost) -> bool:
    return {"nvidia": "ready"}.items() <= {
        row["vendor"]: row["state"] for row in status(gpus)["vendors"]
    }.items()


def assert_a_container_gets_the_driver(gpus: GpuHost) -> None:
    rows = gpus.host.run(f"{RUN} dlopen-all {' '.join(LOADED)}").splitlines()
    assert [row for row in rows if not row.startswith("ok /usr/local/nvidia/lib64/")] == []
    assert len(rows) == len(LOADED)


def test_containers_get_the_gpu_after_pipx_and_install_service(gpus: GpuHost, before: set[str]) -> None:
    assert not [
        path for path in before if "cdigen" in path and not path.startswith(("/wheels", "/etc/systemd"))
    ]
    gpus.host.run(f"{PIPX} install /wheels/cdigen-{__version__}-*.whl")
    report = installed(gpus)
    assert (report["changed"], report["service"], report["next_steps"]) == (True, "active", [])
    assert report["command"] == f"{VENV}/bin/cdigen"
    assert eventually(lambda: is_ready(gpus))
    assert gpus.host.run("systemctl is-enabled cdigen") == "enabled\n"
    assert_a_container_gets_the_driver(gpus)
    assert troubles(gpus) == []


def test_a_second_install_service_changes_nothing_and_does_not_restart_the_daemon(gpus: GpuHost) -> None:
    process = gpus.host.run("systemctl show --property=MainPID cdigen")
    report = installed(gpus)
    assert (report["changed"], report["service"]) == (False, "active")
    assert gpus.host.run("systemctl show --property=MainPID cdigen") == process


@pytest.mark.parametrize("killed_after_s", [0.2, 0.5, 0.8, 1.1, 1.4, 1.7])
def test_after_a_killed_run_the_next_run_enables_and_starts_the_service(
    gpus: GpuHost, killed_after_s: float
) -> None:
    installed(gpus, "--remove")
    gpus.host.attempt(f"timeout --signal=KILL {killed_after_s} cdigen install-service")
    report = installed(gpus)
    assert (report["service"], report["next_steps"]) == ("active", [])
    assert gpus.host.run("systemctl is-enabled cdigen") == "enabled\n"
    assert eventually(lambda: is_ready(gpus))
    assert_a_container_gets_the_driver(gpus)


def test_the_nri_plugin_runs_in_its_unit(gpus: GpuHost) -> None:
    gpus.host.run("systemctl start cdigen-nri && systemctl is-active cdigen-nri")
    gpus.host.run("systemctl stop cdigen-nri")


def test_the_device_plugins_report_missing_grpcio_and_run_with_it(gpus: GpuHost) -> None:
    gpus.host.run("! systemctl start cdigen-kubelet")
    message = gpus.host.run("journalctl --unit=cdigen-kubelet --output=cat")
    command = "env PIPX_HOME=/opt/pipx PIPX_BIN_DIR=/usr/local/bin pipx inject cdigen grpcio"
    assert command in message
    assert "Traceback" not in message
    gpus.host.run(f"PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels {command}")
    gpus.host.run("systemctl start cdigen-kubelet && systemctl is-active cdigen-kubelet")
    gpus.host.run("systemctl stop cdigen-kubelet")


def test_man_pages_and_completions_are_in_debians_folders(gpus: GpuHost) -> None:
    gpus.host.run("test -e /usr/share/man/man8/cdigen-install-service.8")
    gpus.host.run("test -e /usr/share/bash-completion/completions/cdigen")


def test_a_cdigen_below_roots_home_is_refused_with_the_next_step(gpus: GpuHost) -> None:
    gpus.host.run(f"mkdir -p /root/.local && cp --archive {VENV} /root/.local/venv")
    done = gpus.host.attempt("/root/.local/venv/bin/python -m cdigen install-service")
    gpus.host.run("rm -r /root/.local/venv")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "services cannot access homes" in line
    assert "PIPX_HOME=/opt/pipx PIPX_BIN_DIR=/usr/local/bin pipx install" in line


def test_files_are_installed_and_the_next_step_is_printed_if_systemd_does_not_run(gpus: GpuHost) -> None:
    report = json.loads(
        gpus.host.run(
            "unshare --mount sh -c 'mount -t tmpfs none /run/systemd; cdigen install-service --json'"
        )
    )
    assert (report["service"], report["next_steps"]) == (
        "unknown",
        ["systemctl daemon-reload && systemctl enable --now cdigen"],
    )


def test_containers_that_start_during_an_upgrade_have_the_driver(gpus: GpuHost) -> None:
    starts = Starts(gpus.host, gpus.versions)
    with starts:
        gpus.host.run(f"{PIPX} install --force /wheels/cdigen-{NEXT}-*.whl")
        report = installed(gpus)
        assert eventually(lambda: status(gpus).get("version") == NEXT and is_ready(gpus))
    print(f"from {__version__} to {NEXT}: {starts.counts()}")
    assert (report["changed"], report["service"]) == (True, "active")
    assert starts.wrong() == []
    assert set(starts.counts()) == {"driver"}
    assert_a_container_gets_the_driver(gpus)


def test_after_removal_only_views_are_left_and_the_runtime_refuses_containers(
    gpus: GpuHost, before: set[str]
) -> None:
    done = gpus.host.attempt("cdigen install-service --json --remove")
    # This host is in a PID namespace, so cdigen cannot list all processes with a mounted view.
    (stays,) = (line for line in done.stderr.splitlines() if "stays" in line)
    assert re.fullmatch(rf"etc/install: {KEPT}/nvidia-\w+ stays: this PID namespace does not .*", stays)
    report = json.loads(done.stdout)
    assert (report["changed"], report["specs"]) == (True, [])
    # docs/how-to/upgrade-and-remove.md has these commands.
    assert report["next_steps"] == [
        "env PIPX_HOME=/opt/pipx PIPX_BIN_DIR=/usr/local/bin pipx uninstall cdigen",
        "rm -r /opt/pipx",
    ]
    for command in report["next_steps"]:
        gpus.host.run(command)
    refused = gpus.host.attempt(f"{RUN} true")
    assert refused.returncode != 0
    assert REFUSAL in refused.stderr
    assert {path for path in files(gpus) - before if not f"{path}/".startswith(f"{KEPT}/")} == {STATE}
    assert before - files(gpus) == set()
    assert gpus.host.run("systemctl list-units --all --plain --no-legend 'cdigen*'") == ""


def test_a_user_with_pipx_gets_commands_that_install_cdigen_for_the_whole_host(
    gpus: GpuHost, before: set[str]
) -> None:
    wheel = f"/home/alice/my wheels/cdigen-{__version__}-py3-none-any.whl"
    gpus.host.run(
        'useradd --create-home alice; su alice -c \'mkdir "/home/alice/my wheels"; '
        f'cp /wheels/cdigen-{__version__}-*.whl "/home/alice/my wheels"; '
        "PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels pipx install /home/alice/my*/*.whl'"
    )
    refused = gpus.host.attempt("su alice -c '~/.local/bin/cdigen install-service'")
    assert refused.returncode == 2
    (line,) = refused.stderr.splitlines()
    printed = line.partition("; install cdigen for the whole host: ")[2]
    assert f"pipx install '{wheel}' && sudo /usr/local/bin/cdigen install-service" in printed
    # The host has no sudo. Root does not need it.
    gpus.host.run("printf '#!/bin/sh\nexec \"$@\"\n' >/usr/local/sbin/sudo; chmod 0755 /usr/local/sbin/sudo")
    try:
        gpus.host.run(f"export PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels; {printed}")
        assert eventually(lambda: is_ready(gpus))
        assert_a_container_gets_the_driver(gpus)
        for command in installed(gpus, "--remove")["next_steps"]:
            gpus.host.run(command)
    finally:
        gpus.host.run("rm /usr/local/sbin/sudo; userdel --remove alice; rm -f /var/mail/alice")
    left = {path for path in files(gpus) - before if not f"{path}/".startswith(("/etc/", f"{KEPT}/"))}
    assert left <= {STATE}


def test_with_a_read_only_usr_the_error_names_another_prefix_that_works(gpus: GpuHost) -> None:
    gpus.host.run(f"{PIPX} install /wheels/cdigen-{__version__}-*.whl")
    script = (
        "mount --bind /usr/local /usr/local; mount --rbind /usr /usr; mount -o remount,bind,ro /usr; "
        "cdigen install-service{}"
    )
    refused = gpus.host.attempt(f"unshare --mount sh -c '{script.format('')}'")
    assert refused.returncode == 5
    assert "is read-only: nothing was installed" in refused.stderr
    assert "cdigen install-service --prefix /usr/local" in refused.stderr
    gpus.host.run(f"unshare --mount sh -c '{script.format(' --prefix /usr/local')}'")
    assert eventually(lambda: is_ready(gpus))
    assert "/usr/local/libexec/cdigen/cdigen-hook" in gpus.host.run(f"cat {SPEC}")
    assert_a_container_gets_the_driver(gpus)
    installed(gpus, "--prefix /usr/local", "--remove")
    gpus.host.run(f"{PIPX} uninstall cdigen")
    assert REFUSAL in gpus.host.attempt(f"{RUN} true").stderr


def run_playbook(gpus: GpuHost) -> str:
    """Run the playbook of examples/ansible on the host, and return Ansible's summary."""
    variables = f"wheel=/wheels/cdigen-{__version__}-py3-none-any.whl ansible_become=false"
    settings = "PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels"
    command = (
        f"ansible-playbook --inventory localhost, --connection local --extra-vars '{variables}' /cdigen.yml"
    )
    recap = gpus.host.run(f"{settings} {command}", timeout_s=180).splitlines()[-2:]
    return next(line for line in recap if line.startswith("localhost"))


def test_the_playbook_installs_cdigen_and_its_second_run_changes_nothing(gpus: GpuHost) -> None:
    shutil.copy(REPOSITORY / "examples/ansible/cdigen.yml", gpus.root)
    gpus.host.run(f"{PIPX} install ansible-core", timeout_s=180)
    first, second = (dict(word.split("=") for word in run_playbook(gpus).split()[2:]) for _ in range(2))
    assert (first["failed"], first["changed"]) == ("0", "2")
    assert (second["failed"], second["changed"]) == ("0", "0")
    assert_a_container_gets_the_driver(gpus)

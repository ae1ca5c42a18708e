"""`cdigen install-service`, also with --remove, is killed at one of its steps and then run again.

The files, the script and the command are real. systemctl is a program of the test (service_machine.py).
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.installation.installing import done, publish_script, snapshot
from support.installation.service_machine import ServiceMachine
from support.installation.wheels import build, installed, system_python

pytestmark = [pytest.mark.needs_root, pytest.mark.usefixtures("real_nodes")]

# The number of steps, evenly spaced from the first to the last, at which an installation is interrupted.
POINTS = 9
# The same number for an upgrade and for a removal.
FEWER = 4
# Steps 1 to 7 of an installation write its record, and steps 8 to 24 the hook. Each later step writes a file.
EARLY = (*range(1, 9), 13, 18, 20, 22, 23, 24, 25, 40)
START = ["daemon-reload", "enable --now --quiet cdigen.service"]


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a virtual environment with the wheel; each ServiceMachine copies it."""
    folder = tmp_path_factory.mktemp("wheel")
    return installed(build("wheel", folder), folder / "venv", base=system_python()).parents[1]


@pytest.fixture
def machine(tmp_path: Path, venv: Path) -> Iterator[ServiceMachine]:
    found = ServiceMachine(tmp_path, venv)
    yield found
    shutil.rmtree(tmp_path / "host")


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory, venv: Path) -> Iterator[ServiceMachine]:
    """Return a host with a complete installation. Tests share it, and only read its files."""
    found = ServiceMachine(tmp_path_factory.mktemp("complete"), venv)
    done(found.install_service())
    yield found
    shutil.rmtree(found.top / "host")


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory, venv: Path) -> dict[str, int]:
    """Return the number of steps of removal, and of installation and upgrade up to the services' start."""
    found = ServiceMachine(tmp_path_factory.mktemp("steps"), venv)
    counts = {}
    done(found.install_service())
    # The last step, which only reads the state of the service, is excluded.
    counts["install"] = found.steps - 1
    age(found)
    done(found.install_service())
    counts["upgrade"] = found.steps - 1
    done(found.install_service("--remove"))
    counts["remove"] = found.steps
    shutil.rmtree(found.top / "host")
    return counts


def age(machine: ServiceMachine) -> None:
    """Change an installed file, as if another version of cdigen had installed it."""
    unit = machine.folders["/etc"] / "systemd/system/cdigen.service"
    unit.write_text(unit.read_text().replace("[Service]", "[Service]\n# The unit of another version."))


def installed_files(machine: ServiceMachine) -> dict[str, object]:
    """Return each installed file and folder with its mode and lines."""
    tops = {"usr": machine.installed, "units": machine.folders["/etc"] / "systemd/system"}
    return {
        f"{name}/{path}": (row[0], lines(top / path, machine))
        for name, top in tops.items()
        for path, row in snapshot(top).items()
    }


def lines(path: Path, machine: ServiceMachine) -> list[str]:
    """Return the lines of the file PATH without the folder of MACHINE; the lines of the record are sorted."""
    if not path.is_file() or path.suffix == ".pyc":
        return []
    found = path.read_text().replace(str(machine.top), "").splitlines()
    return sorted(found) if path.name == "installed" else found


def point(steps: int, number: int, points: int) -> int:
    """Return entry NUMBER (from 0) of a list of POINTS steps that are evenly spaced from 1 to STEPS."""
    return 1 + number * (steps - 1) // (points - 1)


@pytest.mark.parametrize("number", range(POINTS))
def test_an_interrupted_installation_is_completed_by_the_next_run(
    machine: ServiceMachine, complete: ServiceMachine, steps: dict[str, int], number: int
) -> None:
    before = snapshot(machine.folders["/etc"])
    assert machine.install_service(stop=point(steps["install"], number, POINTS)).returncode != 0
    machine.forget_calls()
    document = json.loads(done(machine.install_service("--json")))
    assert (document["service"], document["next_steps"]) == ("active", [])
    assert machine.calls[:2] == START
    assert machine.is_enabled_and_active
    assert installed_files(machine) == installed_files(complete)
    # Another run changes nothing.
    machine.forget_calls()
    assert json.loads(done(machine.install_service("--json")))["changed"] is False
    assert machine.calls == ["is-active cdigen.service"]
    # The removal removes all files of the interrupted run.
    done(machine.install_service("--remove"))
    assert not machine.installed.exists()
    assert snapshot(machine.folders["/etc"]) == before


@pytest.mark.parametrize("stop", EARLY)
def test_the_removal_of_an_interrupted_installation_leaves_no_files(
    machine: ServiceMachine, stop: int
) -> None:
    before = snapshot(machine.folders["/etc"])
    assert machine.install_service(stop=stop).returncode != 0
    done(machine.install_service("--remove"))
    assert not machine.installed.exists()
    assert not list(machine.installed.parent.glob("cdigen*"))
    assert snapshot(machine.folders["/etc"]) == before
    assert json.loads(done(machine.install_service("--json")))["service"] == "active"


def test_if_only_the_command_was_killed_the_next_run_waits_for_its_script(
    machine: ServiceMachine, complete: ServiceMachine
) -> None:
    assert machine.install_service(stop=10, only_parent=True).returncode != 0
    document = json.loads(done(machine.install_service("--json")))
    assert document["service"] == "active"
    assert machine.calls[:2] == START
    assert installed_files(machine) == installed_files(complete)


@pytest.mark.parametrize("number", range(FEWER))
def test_after_an_interrupted_upgrade_the_next_run_restarts_the_services(
    machine: ServiceMachine, complete: ServiceMachine, steps: dict[str, int], number: int
) -> None:
    done(machine.install_service())
    age(machine)
    assert machine.install_service(stop=point(steps["upgrade"], number, FEWER)).returncode != 0
    machine.forget_calls()
    done(machine.install_service())
    assert machine.calls[0] == "daemon-reload"
    assert machine.calls[1].startswith("try-restart cdigen.service ")
    assert installed_files(machine) == installed_files(complete)


def test_a_service_that_the_administrator_has_stopped_stays_stopped(machine: ServiceMachine) -> None:
    done(machine.install_service())
    (machine.top / "active").unlink()
    (machine.top / "enabled").unlink()
    machine.forget_calls()
    message = machine.install_service()
    assert done(message) == ""
    assert "next step: systemctl daemon-reload && systemctl enable --now cdigen" in message.stderr
    assert machine.calls == ["is-active cdigen.service"]


@pytest.mark.parametrize("number", range(FEWER))
def test_an_interrupted_removal_is_completed_by_the_next_run(
    machine: ServiceMachine, steps: dict[str, int], number: int
) -> None:
    before = snapshot(machine.folders["/etc"])
    done(machine.install_service())
    stop = point(steps["remove"], number, FEWER)
    assert machine.install_service("--remove", stop=stop).returncode != 0
    done(machine.install_service("--remove"))
    assert not machine.installed.exists()
    assert snapshot(machine.folders["/etc"]) == before
    assert not machine.is_enabled_and_active


@pytest.mark.parametrize("number", range(FEWER))
def test_an_installation_after_an_interrupted_removal_starts_the_service(
    machine: ServiceMachine, complete: ServiceMachine, steps: dict[str, int], number: int
) -> None:
    done(machine.install_service())
    stop = point(steps["remove"], number, FEWER)
    assert machine.install_service("--remove", stop=stop).returncode != 0
    done(machine.install_service())
    assert machine.is_enabled_and_active
    assert installed_files(machine) == installed_files(complete)


def test_the_removal_removes_specs_state_and_views_and_keeps_the_configuration(
    machine: ServiceMachine,
) -> None:
    config = machine.folders["/etc"] / "cdigen/config.yaml"
    config.write_text("mode: auto\n")
    done(machine.install_service())
    hook = f"{machine.prefix}/libexec/cdigen/cdigen-hook"
    for kind, program in (("nvidia.com/gpu", hook), ("nvidia.com/bare", "/bin/true")):
        code = publish_script("/run/cdi", kind, program)
        done(machine.run("/opt/venv/bin/python", "-c", code))
    state = machine.folders["/var/lib"] / "cdigen"
    assert (state / "state.json").exists()
    view = state / "views/nvidia-0123456789abcdef"
    (view / "lib64").mkdir(parents=True)
    for name in ("cdigen", "cdigen-nri", "cdigen-kubelet"):
        (machine.folders["/run"] / name).mkdir()
    done(machine.install_service("--remove"))
    assert not state.exists()
    assert [path for path in machine.folders["/run"].iterdir() if path.name.startswith("cdi")] == []
    assert config.read_text() == "mode: auto\n"


def test_a_view_that_a_foreign_spec_names_stays_and_the_reason_is_printed(machine: ServiceMachine) -> None:
    done(machine.install_service())
    view = machine.folders["/var/lib"] / "cdigen/views/nvidia-0123456789abcdef"
    view.mkdir(parents=True)
    specs = machine.folders["/etc"] / "cdi"
    specs.mkdir(exist_ok=True)
    (specs / "other.yaml").write_text("hostPath: /var/lib/cdigen/views/nvidia-0123456789abcdef/lib64\n")
    message = machine.install_service("--remove")
    done(message)
    assert view.is_dir()
    line = "/var/lib/cdigen/views/nvidia-0123456789abcdef stays: /etc/cdi/other.yaml names it"
    assert f"etc/install: {line}" in message.stderr.splitlines()


def test_the_state_stays_if_the_host_has_another_installation(machine: ServiceMachine) -> None:
    done(machine.install_service())
    state = machine.folders["/var/lib"] / "cdigen"
    state.mkdir()
    (state / "links.json").write_text("{}")
    other = machine.folders["/etc"] / "cdigen/installed/libexec/cdigen/cdigen-hook"
    other.parent.mkdir(parents=True)
    other.touch()
    message = machine.install_service("--remove")
    done(message)
    assert (state / "links.json").exists()
    assert (
        "/var/lib/cdigen stays: the installation of /etc/cdigen/installed/libexec/cdigen/cdigen-hook"
        in message.stderr
    )

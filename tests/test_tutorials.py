"""The tutorials as an ordinary user can follow them: without a GPU, and the change of Docker's configuration.

tests/e2e/test_tutorials_*.py follow the other steps.
"""

import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.documents import blocks, follow, put_programs, section_of, shell, steps
from support.hosts import driver_files
from support.hosts.nvidia_kernel import example_gpus, write_kernel_side
from support.paths import REPOSITORY
from support.processes import captured

CDIGEN = f'exec {shlex.quote(sys.executable)} -m cdigen "$@"'
# The versions in the tutorial of an upgrade.
OLD, NEW = "535.216.03", "535.261.03"
TUTORIALS = sorted(path.name for path in (REPOSITORY / "docs/tutorials").iterdir())


def document_of(tutorial: str) -> Any:
    (text,) = blocks(section_of(f"docs/tutorials/{tutorial}"), "yaml")
    return yaml.safe_load(text)


@pytest.mark.process
def test_the_first_container_without_a_gpu_has_the_documented_outputs(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    (checkout / "examples").symlink_to(REPOSITORY / "examples")
    path = put_programs(tmp_path / "bin", {"cdigen": CDIGEN})
    found = steps("docs/tutorials/first-container.md", "Without a GPU")
    assert len(found) == 6
    follow(found, lambda command: shell(command, cwd=checkout, path=path))


@pytest.mark.process
def test_docker_reads_the_spec_directories_after_the_step_of_the_tutorial(tmp_path: Path) -> None:
    root = tmp_path / "host"
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/dockerd").touch(0o755)
    programs = {"sudo": 'exec "$@"', "cdigen": CDIGEN.replace("$@", f'$@" --root "{root}')}
    path = put_programs(tmp_path / "bin", programs)
    found = [step for step in steps("docs/tutorials/docker-compose.md") if "cdigen" in step.command]
    for step in found:
        # A restart needs a running service.
        done = shell(step.command.replace("--restart", ""), cwd=tmp_path, path=path)
        assert done.returncode == 0, done.stdout
    assert "/var/run/cdi" in (root / "etc/docker/daemon.json").read_text()


@pytest.mark.process
@pytest.mark.usefixtures("real_nodes")
def test_the_mismatch_in_the_upgrade_tutorial_is_the_one_that_cdigen_reports(tmp_path: Path) -> None:
    driver_files.debian_13(tmp_path)
    write_kernel_side(tmp_path, example_gpus(1), driver_version=OLD)
    done = captured([sys.executable, "-m", "cdigen", "inspect", "--root", tmp_path], cwd=REPOSITORY)
    (expected,) = re.findall("mismatch: (.*)", section_of("docs/tutorials/driver-upgrade.md"))
    assert done.stderr.startswith(f"cdigen: {expected.replace(NEW, driver_files.V550)}")


def test_the_service_and_the_pod_request_one_gpu() -> None:
    service = document_of("docker-compose.md")["services"]["first"]
    assert service["devices"] == ["nvidia.com/gpu=0"]
    (container,) = document_of("first-pod.md")["spec"]["containers"]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 1}}


@pytest.mark.parametrize("tutorial", TUTORIALS)
def test_each_tutorial_has_steps_and_ends_with_links(tutorial: str) -> None:
    page = f"docs/tutorials/{tutorial}"
    assert len(steps(page)) > 3
    assert section_of(page, "Next").count("](") > 1

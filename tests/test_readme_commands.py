"""The commands in README.md succeed, in a folder with the built packages and on a host with two specs.

Stand-ins replace programs that need root, a GPU, a cluster or an image. The stand-in of a container runtime
accepts only devices that `cdigen list` reports as usable.
"""

import shlex
import sys
from pathlib import Path

import pytest
from support.abilities import tool
from support.documents import commands, put_programs, shell
from support.paths import REPOSITORY

README = "README.md"
PACKAGES = ("cdigen", "python3-cdigen", "cdigen-kubelet")
SPECS = {"nvidia.com-gpu": "debian13-8xh100", "amd.com-gpu": "ubuntu-2xmi300x-cpx"}
OLD_REQUEST = "docker run --rm --gpus all debian nvidia-smi\n"
SUDO = 'exec "$@"\n'
RUNTIME = """
for word in "$@"; do
  if [ "$last" = --device ]; then cdigen list | grep -q "^$word  *usable " || exit 125; fi
  last=$word
done
"""
APT = 'for word in "$@"; do case $word in ./*) [ -e "$word" ] || exit 100 ;; esac; done\n'
KUBECTL = '[ "$1" = get ]\n'
# A restart needs a running service.
CDIGEN = """
for word in "$@"; do
  shift
  case $word in --restart) ;; --inventory) inventory=1; set -- "$@" "$word" ;; *) set -- "$@" "$word" ;; esac
done
[ "$inventory" ] || set -- "$@" --root ROOT
exec PYTHON -m cdigen "$@"
"""
# These commands report problems of the host without a driver, or requests for GPUs, with exit code 1.
REPORTS = (
    "sudo cdigen doctor --device",
    "sudo cdigen doctor --bundle",
    "cdigen doctor --migrate compose.yaml",
)


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Return the root of a host with the specs of two example hosts, and with Docker."""
    root = tmp_path / "host"
    for folder in ("run/cdi", "var", "etc/docker", "usr/bin"):
        (root / folder).mkdir(parents=True)
    (root / "var/run").symlink_to("/run")
    (root / "usr/bin/dockerd").touch(0o755)
    for name, example in SPECS.items():
        spec = (REPOSITORY / f"examples/specs/{example}.json").read_text()
        (root / f"run/cdi/{name}.json").write_text(spec)
    return root


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a folder with the files of the repository, its packages, and files with an old request."""
    folder = tmp_path / "checkout"
    (folder / "build/deb").mkdir(parents=True)
    for name in PACKAGES:
        (folder / f"build/deb/{name}_0.1.0_all.deb").touch()
    locks = (path.name for path in REPOSITORY.glob("requirements*.lock"))
    for name in ("Makefile", "examples", "packaging", "pyproject.toml", *locks):
        (folder / name).symlink_to(REPOSITORY / name)
    for name in ("compose.yaml", "run.sh"):
        (folder / name).write_text(OLD_REQUEST)
    return folder


@pytest.fixture
def path(tmp_path: Path, host: Path) -> str:
    """Return a PATH whose first folder has the stand-ins."""
    cdigen = CDIGEN.replace("ROOT", shlex.quote(str(host))).replace("PYTHON", shlex.quote(sys.executable))
    programs = {
        "sudo": SUDO,
        "podman": RUNTIME,
        "docker": RUNTIME,
        "apt": APT,
        "kubectl": KUBECTL,
        "cdigen": cdigen,
        "make": f'exec {tool("make")} --dry-run "$@"\n',
    }
    return put_programs(tmp_path / "bin", programs)


@pytest.mark.process
def test_every_command_of_the_readme_succeeds(checkout: Path, path: str) -> None:
    found = commands(README)
    assert len(found) > 15
    for command in found:
        done = shell(command, cwd=checkout, path=path)
        expected = 1 if command.startswith(REPORTS) else 0
        assert done.returncode == expected, f"$ {command}\n{done.stdout}"


@pytest.mark.process
def test_the_stand_in_of_a_runtime_rejects_a_device_without_a_spec(checkout: Path, path: str) -> None:
    run = "podman run --device nvidia.com/gpu={} debian true"
    assert shell(run.format(8), cwd=checkout, path=path).returncode == 125
    assert shell(run.format(7), cwd=checkout, path=path).returncode == 0


def test_the_readme_has_at_most_130_lines() -> None:
    assert len((REPOSITORY / README).read_text().splitlines()) <= 130

"""An image's environment, libraries and Python modules: the hook runs none of them, whichever runtime it is.

runc 1.1 hands an image's environment to hooks that have none of their own, LD_PRELOAD included, and starts
every hook in the folder that is the image's root (CVE-2025-23266 was that).
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.abilities import cannot_run
from support.containers.chroot_host import DEBIAN_IMAGE, MACHINE, running_host
from support.containers.hostile_images import EVIL, EXECUTED, SPEC, Target, arm
from support.paths import REPOSITORY

pytestmark = pytest.mark.e2e

# As seen from the container and from a hook: the current folder of both is the image's root.
HERE = f"/proc/self/cwd{EVIL}"
PRELOAD = {"LD_AUDIT": f"{HERE}/library.so", "LD_PRELOAD": f"{HERE}/library.so"}
ENVIRONMENT = {
    **PRELOAD,
    "BASH_ENV": f"{HERE}/module.py",
    "GCONV_PATH": HERE,
    "LD_LIBRARY_PATH": HERE,
    "LOCPATH": HERE,
    "PATH": HERE,
    "PYTHONBREAKPOINT": "module.run",
    "PYTHONHOME": HERE,
    "PYTHONINSPECT": "1",
    "PYTHONPATH": HERE,
    "PYTHONPLATLIBDIR": HERE,
    "PYTHONSTARTUP": f"{HERE}/module.py",
    "PYTHONWARNINGS": "error",
}
# The canaries under every name that an interpreter, a loader or the hook could look for: in the root, which
# is the hook's current folder, in EVIL, and where they belong.
TRAPS = f"""
for folder in . .{EVIL} {{.{EVIL},usr}}/lib/python3.{{11,13}}; do
    mkdir -p $folder/encodings $folder/cdigen/hook
    for name in posix struct _stat sys os site sitecustomize usercustomize _json json stat __main__ \
        encodings/__init__ encodings/utf_8 codecs cdigen/__init__ cdigen/hook/__init__ cdigen/hook/main; do
        ln -f .{EVIL}/module.py $folder/$name.py
    done
done
mkdir -p usr/libexec/cdigen
ln -f .{EVIL}/module.py usr/libexec/cdigen/cdigen-hook
for name in libc.so.6 libm.so.6 libz.so.1 libexpat.so.1 libdl.so.2 libpthread.so.0 ld-linux-x86-64.so.2; do
    ln -f .{EVIL}/library.so .{EVIL}/$name
    ln -f .{EVIL}/library.so $name
done
for name in python3 usr/bin/python3 usr/bin/python3.13 usr/bin/sh usr/sbin/ldconfig .{EVIL}/python3; do
    ln -f .{EVIL}/program $name
done
"""
LIBCUDA = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"  # which OUTSIDE has a copy of


def options(environment: dict[str, str]) -> str:
    return " ".join(f"--env {name}={value}" for name, value in environment.items())


OPTIONS = options(ENVIRONMENT)


@pytest.fixture(scope="module")
def machine(target: Target, images: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """Give this machine itself as a host, with its own podman, runc and Python, and the hook of the spec."""
    old = subprocess.run(
        ["/usr/bin/python3", "-c", "import sys; sys.exit(sys.version_info < (3, 11))"], check=False
    )
    if old.returncode != 0:
        cannot_run("this machine's /usr/bin/python3 is older than 3.11")
    spec = json.loads(target.host.run(f"cat {SPEC}"))
    spec["containerEdits"] = {"hooks": spec["containerEdits"]["hooks"]}
    spec["devices"] = [{"name": "0", "containerEdits": {"env": ["GPU=0"]}}]
    with running_host(MACHINE, images=images) as host:
        host.put(SPEC, json.dumps(spec))
        host.run(f"cd {REPOSITORY} && make --silent install-hook")
        host.run(f"[ -e {LIBCUDA} ] || cp /usr/lib/x86_64-linux-gnu/libc.so.6 {LIBCUDA}")
        yield arm(host, tmp_path_factory.mktemp("machine"), watched="/etc")


def assert_nothing_executed(target: Target, **how: str) -> None:
    """Start a container with all traps; the hook must have done its work, without falling into one."""
    with target.untouched():
        answer = target.start(TRAPS, command=f"{EVIL}/program", **how)
        assert (answer.returncode, answer.stdout) == (0, "started\n"), answer.stderr
        done = target.start(command="ldconfig -p", options=how.get("options", "").replace(OPTIONS, ""))
    assert "libcuda.so.1 (libc6,x86-64) => /usr/local/nvidia/lib64/libcuda.so.1" in done.stdout


def test_nothing_of_the_image_is_executed(target: Target) -> None:
    assert_nothing_executed(target, options=OPTIONS)


@pytest.mark.parametrize("options", ["--read-only", "--user 1000", "--uidmap 0:100000:65536", "--privileged"])
def test_nothing_is_executed_however_the_container_is_run(target: Target, options: str) -> None:
    assert_nothing_executed(target, options=f"{OPTIONS} {options}")


def test_the_environment_of_an_image_is_no_other(target: Target) -> None:
    """Not given to podman but written in the image."""
    changes = " ".join(f"--change 'ENV {name}={value}'" for name, value in ENVIRONMENT.items())
    target.host.run(
        f"""id=$(podman create {DEBIAN_IMAGE} true)
        cd "$(podman mount $id)" && mkdir .{EVIL} && cp /run/canaries/* .{EVIL}
        {TRAPS}
        rm -r .{EVIL}
        cd / && podman umount $id >/dev/null
        podman commit --quiet {changes} $id localhost/evil && podman rm $id""",
        timeout_s=180,
    )
    with target.untouched():
        answer = target.start(image="localhost/evil")
    target.host.run("podman rmi --force localhost/evil")
    assert (answer.returncode, answer.stdout) == (0, "started\n"), answer.stderr


def test_nothing_is_executed_by_this_machines_runtime(machine: Target) -> None:
    assert_nothing_executed(machine, options=OPTIONS)


@pytest.mark.parametrize("change", ["env", "isolation"])
def test_the_traps_catch_a_hook_that_is_less_careful(machine: Target, change: str) -> None:
    """What the tests above are worth: without its environment, or without -I, something is executed.

    runc 1.2 and later give hooks an empty environment then.
    """
    if change == "env" and not machine.host.run("runc --version").startswith("runc version 1.1."):
        cannot_run("needs runc 1.1")
    spec = json.loads(machine.host.run(f"cat {SPEC}"))
    spec["kind"] = "example.com/careless"
    (hook,) = spec["containerEdits"]["hooks"]
    if change == "env":
        del hook["env"]
    else:
        hook["args"] = ["python3", "-c", "import json"]
    machine.host.put("/run/cdi/careless.json", json.dumps(spec))
    machine.start(TRAPS, device="example.com/careless=0", options=options(PRELOAD))
    executed = machine.host.run(f"ls {EXECUTED}; rm -f {EXECUTED}/*").split()
    machine.host.run("rm /run/cdi/careless.json")
    assert executed == ["library" if change == "env" else "module"]

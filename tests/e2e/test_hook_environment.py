"""With every tested runtime, the start-up hook uses no environment variable, library or module of an image.

If the spec of a hook has no `env`, runc 1.1 passes the environment of the image (also LD_PRELOAD) to the
hook. It starts every hook in the image's root (CVE-2025-23266). The tests put canaries into images: programs,
libraries and Python modules that record their execution (support/containers/hostile_images.py).
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

# A path relative to the current folder, which is the image's root for the container and for the hook.
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
# Links the canaries to each name that an interpreter, a loader or the hook could load. The links are in the
# root (the hook's current folder), in EVIL, and at the usual paths.
PLACE_CANARIES = f"""
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
LIBCUDA = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"  # OUTSIDE contains a copy of this library


def options(environment: dict[str, str]) -> str:
    return " ".join(f"--env {name}={value}" for name, value in environment.items())


OPTIONS = options(ENVIRONMENT)


@pytest.fixture(scope="module")
def machine(target: Target, images: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """Return this machine (with its podman, runc and Python) as a host with the hook of the target's spec."""
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
    """Start a container with all canaries; check that the hook updates the cache and that no canary runs."""
    with target.untouched():
        answer = target.start(PLACE_CANARIES, command=f"{EVIL}/program", **how)
        assert (answer.returncode, answer.stdout) == (0, "started\n"), answer.stderr
        done = target.start(command="ldconfig -p", options=how.get("options", "").replace(OPTIONS, ""))
    assert "libcuda.so.1 (libc6,x86-64) => /usr/local/nvidia/lib64/libcuda.so.1" in done.stdout


def test_the_hook_executes_nothing_of_the_image(target: Target) -> None:
    assert_nothing_executed(target, options=OPTIONS)


@pytest.mark.parametrize("options", ["--read-only", "--user 1000", "--uidmap 0:100000:65536", "--privileged"])
def test_the_hook_executes_nothing_of_the_image_in_any_mode(target: Target, options: str) -> None:
    assert_nothing_executed(target, options=f"{OPTIONS} {options}")


def test_the_hook_executes_nothing_of_an_image_that_sets_the_environment(target: Target) -> None:
    """The image sets the environment, not an option of podman."""
    changes = " ".join(f"--change 'ENV {name}={value}'" for name, value in ENVIRONMENT.items())
    target.host.run(
        f"""id=$(podman create {DEBIAN_IMAGE} true)
        cd "$(podman mount $id)" && mkdir .{EVIL} && cp /run/canaries/* .{EVIL}
        {PLACE_CANARIES}
        rm -r .{EVIL}
        cd / && podman umount $id >/dev/null
        podman commit --quiet {changes} $id localhost/evil && podman rm $id""",
        timeout_s=180,
    )
    with target.untouched():
        answer = target.start(image="localhost/evil")
    target.host.run("podman rmi --force localhost/evil")
    assert (answer.returncode, answer.stdout) == (0, "started\n"), answer.stderr


def test_the_hook_executes_nothing_of_the_image_with_this_machines_runtime(machine: Target) -> None:
    assert_nothing_executed(machine, options=OPTIONS)


@pytest.mark.parametrize("change", ["env", "isolation"])
def test_a_hook_whose_spec_lacks_env_or_the_option_i_executes_a_canary(machine: Target, change: str) -> None:
    """Test that the canaries work: the spec of this hook has no `env`, or Python has no option -I.

    runc 1.2 and later pass an empty environment to a hook whose spec has no `env`.
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
    machine.start(PLACE_CANARIES, device="example.com/careless=0", options=options(PRELOAD))
    executed = machine.host.run(f"ls {EXECUTED}; rm -f {EXECUTED}/*").split()
    machine.host.run("rm /run/cdi/careless.json")
    assert executed == ["library" if change == "env" else "module"]

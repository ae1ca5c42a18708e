"""The doctor reports containers that can trace a hook, tested with processes in user namespaces."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from support.abilities import cannot_run

pytestmark = pytest.mark.usefixtures("own_mounts")

# A machine with a spec whose hook runs the interpreter in the first argument. The further arguments are the
# containers of the machine: "sandbox" maps a single user, "pod" maps several users, and "shared" joins the
# namespaces of the pod.
MACHINE = r"""
import json, os, subprocess, sys
interpreter, containers = sys.argv[1], sys.argv[2:]
for folder in ("/etc", "/run", "/var/lib"):
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], check=True)
os.mkdir("/etc/cdi")
with open("/etc/passwd", "w") as file:
    file.write("root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n")
hook = {"hookName": "createContainer", "path": interpreter, "args": ["python3"], "env": ["PATH=/usr/bin"]}
edits = {"containerEdits": {"hooks": [hook]}}
spec = {"cdiVersion": "0.5.0", "kind": "example.com/gpu", "devices": [{"name": "0", **edits}]}
with open("/etc/cdi/example.json", "w") as file:
    json.dump(spec, file)
running = []
def start(*command):
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    running.append(process)
    return process
def pod(count):
    process = start("unshare", "--user", "--pid", "--mount", "--fork", "sh", "-c", "echo; exec sleep 600")
    assert process.stdout.readline() == b"\n"
    (init,) = open(f"/proc/{process.pid}/task/{process.pid}/children").read().split()
    for name in ("uid_map", "gid_map"):
        with open(f"/proc/{init}/{name}", "w") as file:
            file.write(f"0 100000 {count}")
    return init
for container in containers:
    if container == "shared":
        command = ("unshare", "--mount", "--propagation", "unchanged", "sh", "-c", "echo; exec sleep 600")
        joined = start("nsenter", "--user", "--pid", "--target", init, *command)
        assert joined.stdout.readline() == b"\n"
    else:
        init = pod(1 if container == "sandbox" else 1000)
subprocess.run([sys.executable, "-m", "cdigen", "doctor", "--json"])
"""
APART = ("unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc")
OTHER_USER = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
PYTHON = "/usr/bin/python3"
# A copy of the interpreter with mode 0711.
UNREADABLE = "/run/python3"


def finding(*containers: str, interpreter: str = PYTHON, prepare: str = "") -> Any:
    script = MACHINE.replace("running = []", f"running = []\n{prepare}")
    command = (*APART, sys.executable, "-c", script, interpreter, *containers)
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    return next(row for row in json.loads(done.stdout) if row["check"] == "hook-interpreter")


def test_the_check_is_skipped_for_a_user_who_may_not_read_all_namespaces() -> None:
    as_other_user = (*OTHER_USER, sys.executable, "-m", "cdigen", "--version")
    if subprocess.run(as_other_user, check=False, capture_output=True).returncode:
        cannot_run("other users cannot start cdigen from this checkout")
    drop = f"subprocess.run = lambda command, run=subprocess.run: run([*{OTHER_USER}, *command])"
    row = finding(prepare=drop)
    assert (row["checked"], row["detail"]) == (False, "skipped: only root may read all namespaces")


@pytest.mark.parametrize("containers", [(), ("sandbox",)], ids=["none", "a browser's sandbox"])
def test_the_check_passes_if_no_container_has_a_user_namespace(containers: tuple[str, ...]) -> None:
    row = finding(*containers)
    assert (row["ok"], row["detail"]) == (True, "no container has its own user namespace")


def test_a_container_with_a_user_namespace_is_no_failure() -> None:
    row = finding("pod")
    assert row["ok"]
    assert row["detail"].startswith("containers with user namespaces run here")


def test_a_container_in_the_user_and_pid_namespace_of_another_container_is_a_warning() -> None:
    row = finding("pod", "shared")
    assert (row["ok"], row["severity"]) == (False, "warning")
    assert f"can trace {PYTHON} while it runs as a hook" in row["detail"]


def test_an_interpreter_that_other_users_cannot_read_cannot_be_traced() -> None:
    copy = f"import shutil\nshutil.copy({PYTHON!r}, {UNREADABLE!r})\nos.chmod({UNREADABLE!r}, 0o711)"
    row = finding("pod", "shared", interpreter=UNREADABLE, prepare=copy)
    assert (row["ok"], row["detail"]) == (True, "containers cannot trace a hook")

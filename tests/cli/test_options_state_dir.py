"""A user other than root writes specs into the user's folders, on a host whose root is /."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml
from support.abilities import cannot_run
from support.command.specs import configure
from support.paths import REPOSITORY

USER = 4201
# A user cannot access a folder of root, which can contain this Python.
PYTHON = "/usr/bin/python3"
# The script mounts the tree of a host over this machine in an overlay, and runs a command as the user.
BECOME = """
tree=$1 work=$2 repository=$3 yaml=$4; shift 4
mount -t tmpfs -o mode=0755 none "$work"
mkdir "$work/upper" "$work/work" "$work/root"
# A layer of an overlay must not contain another layer.
cp --archive "$tree" "$work/tree"
tree=$work/tree
mount -t overlay -o "lowerdir=$tree:/,upperdir=$work/upper,workdir=$work/work" none "$work/root"
cd "$work/root"
mount -t proc none proc
mount -t tmpfs -o mode=0755 none proc/driver
cp -R "$tree/proc/driver/nvidia" proc/driver
mount --bind "$tree/sys" sys
mount --bind "$tree/dev" dev
install -d -o 4201 -g 4201 home/user
echo 'user:x:4201:4201::/home/user:/bin/sh' >> etc/passwd
mkdir -p var/lib/cdigen run/cdi opt/cdigen
# A user cannot access a checkout in root's home.
cp -R "$repository/cdigen" "$repository/schemas" "$yaml" opt/cdigen
exec chroot . setpriv --reuid 4201 --regid 4201 --clear-groups "$@"
"""


@pytest.fixture
def as_user(host: Path, tmp_path: Path) -> list[str]:
    """Return the first words of a command line that runs its other words as the user on HOST."""
    work = tmp_path / "work"
    work.mkdir()
    start = [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-euc",
        BECOME,
        "sh",
        str(host),
        str(work),
        str(REPOSITORY),
        str(Path(yaml.__file__).parent),
    ]
    trial = subprocess.run(
        [*start, PYTHON, "-c", "import tomllib"], check=False, capture_output=True, text=True
    )
    if trial.returncode != 0:
        cannot_run(f"the overlay of the host cannot be mounted: {trial.stderr.strip()}")
    return start


def run(as_user: list[str], script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*as_user, "sh", "-uc", f'cdigen() {{ "$PYTHON" -m cdigen "$@"; }}\n{script}'],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        env={
            "PATH": os.environ["PATH"],
            "PYTHON": PYTHON,
            "PYTHONPATH": "/opt/cdigen",
            **environment,
        },
    )


def test_a_user_can_write_compare_and_withdraw_specs_in_the_users_directory(as_user: list[str]) -> None:
    done = run(
        as_user,
        """
        own="--spec-dir /home/user/cdi"
        cdigen generate --write $own; echo "written $?"
        echo '{}' > /home/user/cdi/other.txt
        cdigen generate --write $own; echo "again $?"
        cdigen diff $own; echo "diff $?"
        stat -c '%u %a %n' /home/user/cdi/*.json /home/user/.local/state/cdigen/state.json
        cdigen withdraw $own >&2; echo "withdrawn $?"
        ls /home/user/cdi
        """,
    )
    assert done.stdout.splitlines() == [
        "written 0",
        "again 0",
        "diff 0",
        "4201 644 /home/user/cdi/nvidia.com-gpu.json",
        "4201 644 /home/user/.local/state/cdigen/state.json",
        "withdrawn 0",
        "other.txt",
    ], done.stderr
    assert "unchanged" in done.stderr


def test_the_state_of_a_user_is_in_xdg_state_home(as_user: list[str]) -> None:
    script = "cdigen generate --write --spec-dir ~/cdi; ls $XDG_STATE_HOME/cdigen/state.json"
    done = run(as_user, script, XDG_STATE_HOME="/home/user/state", HOME="/home/user")
    assert done.stdout == "/home/user/state/cdigen/state.json\n", done.stderr


def test_a_user_cannot_write_into_the_spec_directory_of_the_system(as_user: list[str]) -> None:
    done = run(as_user, "cdigen generate --write; echo $?; ls -A /home/user /var/lib/cdigen /run/cdi")
    assert done.stdout.splitlines()[0] == "5"
    assert "Permission denied" in done.stderr
    assert "a folder of your own" in done.stderr
    assert ".json" not in done.stdout
    assert ".local" not in done.stdout


def test_a_configuration_that_only_root_may_read_causes_a_warning(host: Path, as_user: list[str]) -> None:
    configure(host, "mode: auto\n").chmod(0o600)
    done = run(as_user, "cdigen list; echo list $?; cdigen status; cdigen doctor --json")
    assert "list 0" in done.stdout
    assert "cdigen: warning: the defaults apply: /etc/cdigen/config.yaml cannot be read" in done.stderr
    # A user cannot determine whether the daemon starts with this configuration.
    assert "no cdigen daemon" in done.stderr
    assert "does not start" not in done.stderr
    verdicts = json.loads(done.stdout[done.stdout.index("list 0\n") + 7 :])
    report = {row["check"]: (row["ok"], row["checked"]) for row in verdicts}
    assert report["configuration"] == (True, False)

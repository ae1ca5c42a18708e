"""The file by which a runtime starts the NRI plugin itself."""

import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support.abilities import tool
from support.daemon.host import unshared
from support.installation.unit_files import ETC

WRAPPER = ETC / "nri-plugin/20-cdigen"
GIVEN = {"NRI_PLUGIN_IDX", "NRI_PLUGIN_NAME", "NRI_PLUGIN_SOCKET"}


@pytest.fixture
def wrapper(tmp_path: Path) -> Path:
    """Return the wrapper with a program in cdigen's place, which tells what it was given."""
    program = tmp_path / "cdigen"
    program.write_text(
        f"#!{sys.executable} -BIS\n"
        "import os, socket, sys\n"
        "given = socket.socket(fileno=int(os.environ['NRI_PLUGIN_SOCKET']))\n"
        "said = [*sys.argv[1:], *sorted(os.environ)]\n"
        "given.sendall(' '.join(said).encode())\n"
    )
    program.chmod(0o755)
    copy = tmp_path / "20-cdigen"
    copy.write_text(WRAPPER.read_text().replace("/usr/bin/cdigen", str(program)))
    copy.chmod(0o755)
    return copy


# As Go's ExtraFiles: the socket is number 3.
AT_THREE = "import os, sys; os.dup2(int(sys.argv[1]), 3); os.execv(sys.argv[2], sys.argv[2:])"


def told(wrapper: Path, *before: str) -> list[str]:
    """Start WRAPPER by BEFORE as runtimes do, and return what the program in cdigen's place was given."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        number = theirs.fileno()
        subprocess.run(
            [*before, sys.executable, "-IBSc", AT_THREE, str(number), wrapper],
            env={"NRI_PLUGIN_NAME": "cdigen", "NRI_PLUGIN_IDX": "20", "NRI_PLUGIN_SOCKET": "3"},
            pass_fds=[number],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            check=True,
        )
        theirs.close()
        ours.settimeout(60)
        return ours.recv(4096).decode().split()


def test_the_wrapper_passes_the_socket_on_without_any_environment(wrapper: Path) -> None:
    argument, *environment = told(wrapper)
    assert argument == "nri"
    assert {*environment} >= GIVEN
    assert "PATH" not in environment


@pytest.mark.usefixtures("own_mounts")
def test_where_there_is_a_journal_the_log_goes_there_and_the_socket_is_passed_on(
    wrapper: Path, tmp_path: Path
) -> None:
    tool("systemd-cat", "systemd")
    journal = tmp_path / "journal"
    journal.mkdir()
    script = 'mkdir -p /run/systemd/journal && mount --bind {0} /run/systemd/journal && exec "$@"'
    program = tmp_path / "cdigen"
    program.write_text(f"{program.read_text()}print('said', flush=True)\n")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{journal}/stdout")
        listener.listen()
        listener.settimeout(60)
        before = [*unshared("--mount"), "sh", "-c", script.format(shlex.quote(str(journal))), "sh"]
        assert told(wrapper, *before)[0] == "nri"
        connection, _ = listener.accept()
        with connection:
            received = connection.makefile("rb").read().decode()
    assert received.startswith("cdigen-nri\n")
    assert received.endswith("\nsaid\n")


def test_the_wrapper_is_a_program_that_every_shell_reads() -> None:
    assert os.access(WRAPPER, os.X_OK)
    subprocess.run(["sh", "-n", WRAPPER], check=True)

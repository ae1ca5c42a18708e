"""With the wrapper 20-cdigen, a runtime starts the NRI plugin itself."""

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
RUNTIME_VARIABLES = {"NRI_PLUGIN_IDX", "NRI_PLUGIN_NAME", "NRI_PLUGIN_SOCKET"}


@pytest.fixture
def wrapper(tmp_path: Path) -> Path:
    """Return the wrapper of a fake cdigen that sends its arguments and variable names to the given socket."""
    program = tmp_path / "cdigen"
    program.write_text(
        f"#!{sys.executable} -BIS\n"
        "import os, socket, sys\n"
        "runtime = socket.socket(fileno=int(os.environ['NRI_PLUGIN_SOCKET']))\n"
        "lines = [*sys.argv[1:], *sorted(os.environ)]\n"
        "runtime.sendall(' '.join(lines).encode())\n"
    )
    program.chmod(0o755)
    copy = tmp_path / "20-cdigen"
    copy.write_text(WRAPPER.read_text().replace("/usr/bin/cdigen", str(program)))
    copy.chmod(0o755)
    return copy


# The socket has the file descriptor 3, as with Go's ExtraFiles.
AT_THREE = "import os, sys; os.dup2(int(sys.argv[1]), 3); os.execv(sys.argv[2], sys.argv[2:])"


def report(wrapper: Path, *before: str) -> list[str]:
    """Start WRAPPER as runtimes do, below the command `before`; return the output of the fake cdigen."""
    own, passed = socket.socketpair()
    with own, passed:
        number = passed.fileno()
        subprocess.run(
            [*before, sys.executable, "-IBSc", AT_THREE, str(number), wrapper],
            env={"NRI_PLUGIN_NAME": "cdigen", "NRI_PLUGIN_IDX": "20", "NRI_PLUGIN_SOCKET": "3"},
            pass_fds=[number],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            check=True,
        )
        passed.close()
        own.settimeout(60)
        return own.recv(4096).decode().split()


def test_the_wrapper_passes_the_socket_on_if_the_runtime_sets_no_path(wrapper: Path) -> None:
    argument, *environment = report(wrapper)
    assert argument == "nri"
    assert {*environment} >= RUNTIME_VARIABLES
    assert "PATH" not in environment


@pytest.mark.usefixtures("own_mounts")
def test_the_wrapper_logs_to_the_journal_if_it_exists_and_passes_the_socket_on(
    wrapper: Path, tmp_path: Path
) -> None:
    tool("systemd-cat", "systemd")
    journal = tmp_path / "journal"
    journal.mkdir()
    script = 'mkdir -p /run/systemd/journal && mount --bind {0} /run/systemd/journal && exec "$@"'
    program = tmp_path / "cdigen"
    program.write_text(f"{program.read_text()}print('started', flush=True)\n")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{journal}/stdout")
        listener.listen()
        listener.settimeout(60)
        before = [*unshared("--mount"), "sh", "-c", script.format(shlex.quote(str(journal))), "sh"]
        assert report(wrapper, *before)[0] == "nri"
        connection, _ = listener.accept()
        with connection:
            received = connection.makefile("rb").read().decode()
    assert received.startswith("cdigen-nri\n")
    assert received.endswith("\nstarted\n")


def test_the_wrapper_is_executable_and_valid_shell() -> None:
    assert os.access(WRAPPER, os.X_OK)
    subprocess.run(["sh", "-n", WRAPPER], check=True)

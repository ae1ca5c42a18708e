"""Requirements of tests on the machine and on the user that runs them.

A test that cannot run is skipped with the reason; if CI is set in the environment, it fails instead.
`needs_root` and `needs_user` select the tests of each user (tests/README.md, "Root and ordinary users").
"""

import fcntl
import os
import re
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from support.abilities import ROOT_FIXTURES, cannot_run, tool

# The time of an example depends on the machine, not on the code.
settings.register_profile("patient", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
# Each run draws the same examples, so that a change fails only by its own defect, not by a new example.
settings.register_profile("default", settings.get_profile("patient"), max_examples=25, derandomize=True)
# For 'make quick'.
settings.register_profile("quick", settings.get_profile("default"), max_examples=10)
# 'make nightly' draws random examples. A failure prints a line that repeats the failure.
settings.register_profile(
    "nightly", settings.get_profile("patient"), max_examples=500, derandomize=False, print_blob=True
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

# Fixtures of the command's tests and of the end-to-end tests.
pytest_plugins = ("support.command.fixtures", "support.log_pipe", "support.provisioned")


def pytest_configure() -> None:
    # With the umask 002 of users on Debian 13, the group could write to all files of a tree.
    os.umask(0o022)


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Write the name and the error of a failed test at once, because an interrupted run has no summary."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        crash = getattr(report.longrepr, "reprcrash", None)
        message = getattr(crash, "message", str(report.longrepr)).partition("\n")[0]
        sys.stderr.write(f"\n{report.when} of {report.nodeid} failed: {message[:500]}\n")
        sys.stderr.flush()


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Return a short name for long data, which pytest before 9 would write into each report of a test."""
    return argname if isinstance(val, str | bytes) and len(val) > 200 else None


# Words in the names of modules whose tests have hostile input or faults of the machine.
ADVERSARIAL = re.compile(
    r"_(?:exposed|faults|hazards|hostile|killed|laws|leaks|races|refused|soak|unread)(?:_|$)"
)


# The fixtures that start the command, or install a package.
PROCESSES = frozenset({"acme", "cdigen_process", "guests", "mixed"})
# Names in the modules of tests/e2e that use a resource of the whole machine: its kernel log, or all of its
# processors, for a Kubernetes node. These modules run one after the other.
MACHINE_WIDE = re.compile(r"\b(?:kubernetes_tree|kernel_records)\b")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Return pytest-xdist's scheduler by files, for which the modules that match MACHINE_WIDE are one file.

    Groups (`--dist loadgroup`) would do the same, but pytest-xdist 3.8 ignores them with pytest 9.2.
    """
    from xdist.scheduler import LoadFileScheduling  # noqa: PLC0415 - a run without -n does not need it

    class Scheduling(LoadFileScheduling):  # type: ignore[misc] # without types
        def _split_scope(self, nodeid: str) -> str:
            module = nodeid.split("::", 1)[0]
            is_shared = module.startswith("tests/e2e/") and MACHINE_WIDE.search(Path(module).read_text())
            return "tests/e2e" if is_shared else module

    return Scheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if ADVERSARIAL.search(item.path.stem):
            item.add_marker(pytest.mark.adversarial)
        if PROCESSES & fixtures:
            item.add_marker(pytest.mark.process)
        if ROOT_FIXTURES & fixtures:
            item.add_marker(pytest.mark.needs_root)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that needs another user; in CI, a test that `needs_root` fails instead."""
    is_root = os.geteuid() == 0
    if item.get_closest_marker("needs_root") and not is_root:
        cannot_run("needs root")
    if item.get_closest_marker("needs_user") and is_root:
        pytest.skip("needs an ordinary user")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite the specs in tests/golden; review the difference before a commit",
    )


@pytest.fixture(scope="session")
def real_nodes(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Require the right to make character devices."""
    try:
        os.mknod(tmp_path_factory.mktemp("node") / "null", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    except OSError as error:
        cannot_run(f"character devices cannot be made ({error.strerror}): run as root")


@pytest.fixture(scope="session")
def real_root() -> None:
    """Require the right to call chroot(2)."""
    chroot = [sys.executable, "-I", "-S", "-c", "import os; os.chroot('/')"]
    if subprocess.run(chroot, check=False, capture_output=True).returncode != 0:
        cannot_run("chroot(2) is not permitted: run as root")


@pytest.fixture(scope="session")
def other_users() -> None:
    """Require the right to change the owner of files and to start processes as other users."""
    if os.geteuid() != 0:
        cannot_run("files and processes of other users cannot be made: run as root")


@pytest.fixture(scope="session")
def own_mounts() -> None:
    """Require the right to mount file systems in a new mount namespace."""
    mount = [tool("unshare", "util-linux"), "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    trial = subprocess.run(mount, check=False, capture_output=True, text=True)
    if trial.returncode != 0:
        cannot_run(f"file systems cannot be mounted ({trial.stderr.strip()}): run as root")


@pytest.fixture
def uevents() -> Iterator[None]:
    """Require the right to make the kernel send uevents; one test of a machine at a time has the fixture."""
    device = "/sys/devices/virtual/mem/null/uevent"
    if not os.access(device, os.W_OK):
        cannot_run("no uevent can be sent: run as root, with a writable /sys")
    with open(device, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture
def untraced() -> Iterator[None]:
    """Run the test, and the threads that it starts, without coverage's tracing."""
    here, threads = sys.gettrace(), threading.gettrace()
    sys.settrace(None)
    threading.settrace(None)
    yield
    threading.settrace(threads)
    sys.settrace(here)

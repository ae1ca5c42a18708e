"""What a test does that cannot run here: it is skipped with the reason, and fails where CI is set."""

import importlib.util
import os
import shutil
from typing import NoReturn

import pytest

# PYTHONWARNINGS of the processes that tests start: as pyproject.toml has it for the tests themselves.
WARNINGS = (
    "error,ignore:Type google.protobuf.pyext:DeprecationWarning,"
    "ignore:datetime.datetime.utcfromtimestamp:DeprecationWarning:google.protobuf.internal.well_known_types,"
    "ignore:Unexpected end-group tag:RuntimeWarning"
)


# A test that uses one of these fixtures, directly or by others, needs root: they check for a privilege, or
# return the provisioned parts.
ROOT_FIXTURES = frozenset({"cache", "other_users", "own_mounts", "real_nodes", "real_root", "uevents"})


def cannot_run(reason: str) -> NoReturn:
    """End the test: a skip that says why, or in CI, where nothing may be skipped, a failure."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def tool(name: str, package: str = "") -> str:
    """Return the path of a program; where it is missing, the test cannot run. Debian's PACKAGE has it."""
    # An ordinary user's PATH lacks the folders of the administrator's programs.
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if found is None:
        cannot_run(f"{name} is not installed (apt-get install {package or name})")
    return found


def module(name: str, package: str) -> None:
    """Make sure that a module is there; where it is missing, the test cannot run. PyPI's PACKAGE has it."""
    if importlib.util.find_spec(name) is None:
        cannot_run(f"{name} is not there ({package} of PyPI)")

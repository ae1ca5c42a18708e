"""Skips a test that cannot run on this machine, with the reason; if CI is set, the test fails instead."""

import importlib.util
import os
import shutil
from typing import NoReturn

import pytest

# PYTHONWARNINGS for the processes that tests start, as in pyproject.toml for the tests themselves.
WARNINGS = (
    "error,ignore:Type google.protobuf.pyext:DeprecationWarning,"
    "ignore:datetime.datetime.utcfromtimestamp:DeprecationWarning:google.protobuf.internal.well_known_types,"
    "ignore:Unexpected end-group tag:RuntimeWarning"
)


# A test that uses one of these fixtures, directly or indirectly, needs root: the fixtures check for a
# privilege, or return the provisioned parts.
ROOT_FIXTURES = frozenset({"cache", "other_users", "own_mounts", "real_nodes", "real_root", "uevents"})


def cannot_run(reason: str) -> NoReturn:
    """Skip the test with REASON; if CI is set, fail it, because no test may be skipped in CI."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def tool(name: str, package: str = "") -> str:
    """Return the path of the program NAME of Debian's PACKAGE; if it is missing, the test cannot run."""
    # An ordinary user's PATH lacks the folders of the administrator's programs.
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if found is None:
        cannot_run(f"{name} is not installed (apt-get install {package or name})")
    return found


def module(name: str, package: str) -> None:
    """Check that the module NAME of PyPI's PACKAGE is installed; if it is missing, the test cannot run."""
    if importlib.util.find_spec(name) is None:
        cannot_run(f"module {name} is not installed (pip install {package})")

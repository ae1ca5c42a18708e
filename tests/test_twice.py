"""``tests/twice``: CI's second run of the few tests that failed."""

import os
import sys
from pathlib import Path

import pytest
from support.abilities import module
from support.processes import captured

TWICE = Path(__file__).with_name("twice")
PASSES = "def test_passes():\n    pass\n"
FAILS = "def test_fails():\n    raise ValueError('again')\n"
# Fails where its file is not there yet.
FAILS_ONCE = (
    "from pathlib import Path\n"
    "def test_misses_its_moment():\n"
    "    been = Path(__file__).with_suffix('.been')\n"
    "    is_second = been.exists()\n"
    "    been.touch()\n"
    "    assert is_second\n"
)
# A host for nine tests that does not come up once.
HOST_FAILS_ONCE = (
    "import pytest\n"
    "from pathlib import Path\n"
    "@pytest.fixture(scope='module')\n"
    "def host():\n"
    "    been = Path(__file__).with_suffix('.been')\n"
    "    is_second = been.exists()\n"
    "    been.touch()\n"
    "    assert is_second\n"
    "@pytest.mark.parametrize('number', range(9))\n"
    "@pytest.mark.usefixtures('host')\n"
    "def test_needs_it(number):\n"
    "    pass\n"
)
NOT_COLLECTED = "import nothing_of_this_name"


@pytest.mark.process
@pytest.mark.parametrize(
    ("modules", "jobs", "code", "runs"),
    [
        ([PASSES], 0, 0, 1),
        ([PASSES, FAILS_ONCE], 0, 0, 2),
        ([PASSES, FAILS_ONCE], 1, 0, 2),
        ([PASSES, FAILS_ONCE, FAILS], 0, 1, 2),
        ([FAILS_ONCE] * 6, 0, 1, 1),
        ([PASSES, HOST_FAILS_ONCE], 0, 0, 2),
        ([PASSES, NOT_COLLECTED], 0, 2, 1),
        ([PASSES, FAILS_ONCE, NOT_COLLECTED], 1, 1, 1),
    ],
)
def test_the_few_that_failed_run_once_more(
    tmp_path: Path, modules: list[str], jobs: int, code: int, runs: int
) -> None:
    module("xdist", "pytest-xdist")
    for number, text in enumerate(modules):
        (tmp_path / f"test_{number}.py").write_text(text)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = captured([TWICE, "-n", str(jobs), "."], cwd=tmp_path, env=environment | {"PYTHON": sys.executable})
    assert (done.returncode, done.stdout.count("test session starts")) == (code, runs), done.stdout

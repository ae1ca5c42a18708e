"""Each test that needs root declares it."""

import pytest
from support.paths import TESTS
from support.root_calls import Sources


def test_each_test_that_requires_root_declares_it() -> None:
    assert Sources({path: path.read_text() for path in TESTS.rglob("*.py")}).undeclared() == []


HELPER = """
import os, subprocess
def give(path):
    os.chown(path, 1, 1)
class Tree:
    def lay(self):
        give("a")
    def read(self):
        pass
"""


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("def test_a(tmp_path): os.mknod(tmp_path / 'a')", "mknod"),
        ("def test_a(tmp_path): planted.give(tmp_path)", "give: chown"),
        ("def test_a(): Tree().lay()", "Tree.lay: give: chown"),
        (
            "@pytest.fixture\ndef laid(): Tree().lay()\ndef test_a(laid): pass",
            "laid: Tree.lay: give: chown",
        ),
        ("def test_a(): subprocess.run(['mount', '-t', 'tmpfs', 'a', 'b'])", "mount"),
        ("A = ('unshare', '--mount')\ndef test_a(): run(*A)", "A: unshare"),
        ("def test_a(): subprocess.Popen(['id'], user=65534)", "user="),
        ("def test_a(): run('-c', 'import os\\nos.setuid(1)')", "os.setuid("),
        ("def test_a(): run('unshare', '--user', '--map-root-user')", ""),
        ("def test_a(): Tree().read()", ""),
        ("def test_a():\n if os.geteuid() == 0: os.chown('a', 1, 1)", ""),
        ("def test_a(real_nodes): planted.give('a')", ""),
        ("@pytest.mark.needs_root\ndef test_a(): planted.give('a')", ""),
        ("pytestmark = pytest.mark.usefixtures('own_mounts')\ndef test_a(): Tree().lay()", ""),
    ],
)
def test_a_call_that_needs_root_is_found(body: str, reason: str) -> None:
    test = f"import os, subprocess, pytest, planted\nfrom planted import Tree\n{body}\n"
    conftest = TESTS / "conftest.py"
    files = {TESTS / "planted.py": HELPER, TESTS / "test_planted.py": test, conftest: conftest.read_text()}
    assert Sources(files).undeclared() == ([f"test_planted.py::test_a: {reason}"] if reason else [])

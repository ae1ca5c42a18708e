"""tests/debian13-tests: the test modules of the code whose libraries differ from the locked ones."""

import importlib.util
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest
from support.paths import REPOSITORY


@pytest.fixture(scope="module")
def program() -> ModuleType:
    loader = SourceFileLoader("debian13_tests", str(REPOSITORY / "tests/debian13-tests"))
    spec = importlib.util.spec_from_loader("debian13_tests", loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("library", "module"),
    [
        ("watchdog", "tests/watch/test_inotify.py"),
        ("grpc", "tests/kubelet/test_process.py"),
        ("yaml", "tests/config/test_reading_laws.py"),
        ("google.protobuf", "tests/nri/wire/test_messages.py"),
        ("tomlkit", "tests/runtimes/test_documents.py"),
    ],
)
def test_a_library_selects_the_tests_of_its_users(program: ModuleType, library: str, module: str) -> None:
    assert module in program.selected({library})


def test_a_library_selects_no_test_of_others(program: ModuleType) -> None:
    assert not [path for path in program.selected({"watchdog"}) if path.startswith("tests/binfmt/")]
    assert program.selected(set()) == []


def test_an_import_for_types_alone_selects_nothing(program: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text(
        "from typing import TYPE_CHECKING\nimport a.b\nif TYPE_CHECKING:\n    import c\n"
        "def work():\n    from d import e\n"
    )
    assert program.imports(tmp_path / "code.py") == {"a", "a.b", "d", "d.e", "typing", "typing.TYPE_CHECKING"}


def test_each_library_is_compared_by_the_version_that_is_locked(program: ModuleType, tmp_path: Path) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text(
        f"pytest=={pytest.__version__} \\\n    --hash=sha256:0\npyyaml==0.1 \\\nnot-there==1.0 \\\n"
    )
    assert program.differing(lock) == {"yaml", "not_there"}

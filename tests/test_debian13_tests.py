"""tests/debian13-tests: the test modules of code whose libraries differ from the locked versions."""

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
def test_a_library_selects_the_tests_of_the_code_that_imports_it(
    program: ModuleType, library: str, module: str
) -> None:
    assert module in program.selected({library})


def test_a_library_selects_no_test_of_code_that_does_not_import_it(program: ModuleType) -> None:
    assert not [path for path in program.selected({"watchdog"}) if path.startswith("tests/binfmt/")]
    assert program.selected(set()) == []


def test_an_import_only_for_type_checking_is_ignored(program: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text(
        "from typing import TYPE_CHECKING\nimport a.b\nif TYPE_CHECKING:\n    import c\n"
        "def work():\n    from d import e\n"
    )
    assert program.imports(tmp_path / "code.py") == {"a", "a.b", "d", "d.e", "typing", "typing.TYPE_CHECKING"}


def test_a_library_differs_if_it_is_missing_or_not_of_the_locked_version(
    program: ModuleType, tmp_path: Path
) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text(
        f"pytest=={pytest.__version__} \\\n    --hash=sha256:0\npyyaml==0.1 \\\nnot-there==1.0 \\\n"
    )
    assert program.differing(lock) == {"yaml", "not_there"}

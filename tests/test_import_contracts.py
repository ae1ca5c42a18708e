"""The import contracts of pyproject.toml notice what they forbid: each is broken in a copy of the package."""

import re
import shutil
import sys
import tomllib
from pathlib import Path

import pytest
from support.abilities import module
from support.paths import REPOSITORY
from support.processes import captured

PROJECT = REPOSITORY / "pyproject.toml"
CONTRACTS = tomllib.loads(PROJECT.read_text())["tool"]["importlinter"]["contracts"]
NAMES = tuple(contract["name"] for contract in CONTRACTS)
DOWN, HOOK, LOG, STORE, WRITERS, VENDORS, STAGES, NRI, RESOURCES, DESK, KUBELET, SHARES, EXTENDER = NAMES

# A module, an import that it must not have, and the contract that refuses it.
FORBIDDEN = [
    ("model/errors.py", "import cdigen.cli.main", DOWN),
    ("frontend/log.py", "import cdigen.daemon.states", DOWN),
    ("frontend/log.py", "import cdigen.nri.pods", DOWN),
    ("vendors/nvidia/tables.py", "import cdigen.cdi.build", DOWN),
    ("health/book.py", "import cdigen.watch.triggers", DOWN),
    ("binfmt/elf.py", "import cdigen.model.errors", DOWN),
    ("cli/list.py", "import cdigen.hook.main", DOWN),
    ("host/root.py", "def late() -> None:\n    import cdigen.store.lock", DOWN),
    ("newroom/__init__.py", "import cdigen.value", DOWN),
    ("newroom/__init__.py", "import cdigen.value", HOOK),
    ("newroom/__init__.py", "import cdigen.value", LOG),
    ("hook/main.py", "import cdigen.model.errors", HOOK),
    ("hook/state.py", "import cdigen.host.root", HOOK),
    ("kernellog/main.py", "import cdigen.value", LOG),
    ("watch/poll.py", "import cdigen.kernellog.records", DOWN),
    ("store/lock.py", "import cdigen.binfmt.elf", STORE),
    ("store/lock.py", "import cdigen.store.specs", WRITERS),
    ("store/newfile.py", "import cdigen.value", WRITERS),
    ("vendors/amd/kfd.py", "import cdigen.vendors.nvidia.tables", VENDORS),
    ("vendors/kernel/drm.py", "import cdigen.vendors.intel.presence", VENDORS),
    ("topology/levels.py", "import cdigen.watch.triggers", DOWN),
    ("pipeline/naming.py", "import cdigen.pipeline.generate", STAGES),
    ("pipeline/newstage.py", "import cdigen.value", STAGES),
    ("nri/decision/audit.py", "import cdigen.nri.wire.messages", NRI),
    ("nri/decision/decide.py", "import cdigen.nri.events", NRI),
    ("nri/wire/session.py", "import cdigen.nri.decision.compat", NRI),
    ("frontend/log.py", "import cdigen.kubelet.resources.offer", DOWN),
    ("kubelet/resources/model.py", "import cdigen.kubelet.registration", KUBELET),
    ("kubelet/newpart.py", "import cdigen.value", KUBELET),
    ("kubelet/resources/selection.py", "import cdigen.kubelet.resources.mig", RESOURCES),
    ("kubelet/resources/model.py", "import cdigen.kubelet.occurrences", KUBELET),
    ("kubelet/registration.py", "import cdigen.kubelet.wire.messages", KUBELET),
    ("kubelet/newmodule.py", "import cdigen.value", KUBELET),
    ("kubelet/wire/server.py", "import cdigen.nri.pods", DOWN),
    ("gpushare/claims.py", "import cdigen.kubeapi.calls", DOWN),
    ("kubeapi/client.py", "import cdigen.gpushare.pods", DOWN),
    ("extender/index.py", "import cdigen.kubelet.pods", DOWN),
    ("kubelet/shares/books.py", "import cdigen.kubelet.shares.settling", DESK),
    ("gpushare/pods.py", "import cdigen.gpushare.claims", SHARES),
    ("extender/placement.py", "import cdigen.extender.index", EXTENDER),
    ("extender/newpart.py", "import cdigen.value", EXTENDER),
]


def lint(folder: Path) -> str:
    """Return what lint-imports says of the package in FOLDER."""
    module("importlinter", "import-linter")
    program = Path(sys.executable).with_name("lint-imports")
    command = [str(program), "--config", str(PROJECT), "--no-cache", "--no-logo"]
    environment = {"PYTHONPATH": str(folder)}
    done = captured(command, cwd=folder, env=environment)
    return " ".join(done.stdout.split())


def copied(folder: Path) -> Path:
    """Return a copy of the package in FOLDER."""
    return shutil.copytree(
        REPOSITORY / "cdigen", folder / "cdigen", ignore=shutil.ignore_patterns("__pycache__")
    )


def test_the_package_keeps_every_contract(tmp_path: Path) -> None:
    said = lint(copied(tmp_path).parent)
    assert f"Contracts: {len(CONTRACTS)} kept, 0 broken." in said, said


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the report of each contract on a copy that has all forbidden imports."""
    package = copied(tmp_path_factory.mktemp("package"))
    for module_name, line, _ in FORBIDDEN:
        file = package / module_name
        file.parent.mkdir(exist_ok=True)
        with file.open("a") as text:
            text.write(f"\n{line}\n")
    _, *reports = re.split("(" + "|".join(map(re.escape, NAMES)) + ") -+ ", lint(package.parent))
    return dict(zip(reports[::2], reports[1::2], strict=True))


@pytest.mark.parametrize(("module", "line", "contract"), FORBIDDEN)
def test_a_forbidden_import_is_refused(broken: dict[str, str], module: str, line: str, contract: str) -> None:
    importer = "cdigen." + module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    imported = line.rpartition(" ")[2]
    imports, _, unlisted = broken[contract].partition("modules are not listed as layers:")
    # A new module is in no layer. Of others, the report names the import.
    if (REPOSITORY / "cdigen" / module).exists():
        assert f"- {importer} -> {imported} (" in imports
    else:
        assert f"- {importer} " in unlisted


def test_every_contract_has_a_forbidden_import() -> None:
    assert {contract for _, _, contract in FORBIDDEN} == {contract["name"] for contract in CONTRACTS}

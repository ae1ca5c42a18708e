"""The import contracts of pyproject.toml: each contract detects a forbidden import in a copy."""

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
DOWN, HOOK, LOG, STORE, WRITERS, VENDORS, SHARED, STAGES, NRI, RESOURCES, GPU_MEMORY, *OTHERS = NAMES
KUBELET, REGISTRATION, GPUSHARE, EXTENDER = OTHERS

# A module, an import that the module must not have, and the contract that refuses the import.
FORBIDDEN = [
    ("model/errors.py", "import cdigen.cli.main", DOWN),
    ("service/process/log.py", "import cdigen.daemon.cycle.states", DOWN),
    ("service/process/log.py", "import cdigen.nri.pods", DOWN),
    ("vendors/nvidia/files/tables.py", "import cdigen.cdi.build", DOWN),
    ("health/state.py", "import cdigen.watch.triggers", DOWN),
    ("binfmt/elf.py", "import cdigen.model.errors", DOWN),
    ("cli/specs/list.py", "import cdigen.hook.main", DOWN),
    ("host/root.py", "def late() -> None:\n    import cdigen.store.lock", DOWN),
    ("newpackage/__init__.py", "import cdigen.value", DOWN),
    ("newpackage/__init__.py", "import cdigen.value", HOOK),
    ("newpackage/__init__.py", "import cdigen.value", LOG),
    ("runtimes/releases.py", "import cdigen.config.keys", DOWN),
    ("hook/main.py", "import cdigen.model.errors", HOOK),
    ("hook/state.py", "import cdigen.host.root", HOOK),
    ("kernellog/main.py", "import cdigen.value", LOG),
    ("watch/poll.py", "import cdigen.kernellog.reading", DOWN),
    ("store/lock.py", "import cdigen.binfmt.elf", STORE),
    ("store/lock.py", "import cdigen.store.specs", WRITERS),
    ("store/newfile.py", "import cdigen.value", WRITERS),
    ("vendors/amd/kfd.py", "import cdigen.vendors.nvidia.files.tables", VENDORS),
    ("vendors/kernel/drm/devices.py", "import cdigen.vendors.intel.presence", VENDORS),
    ("vendors/registry.py", "import cdigen.vendors.amd.vendor", VENDORS),
    (
        "doctor/checks/driver.py",
        "def late() -> None:\n    import cdigen.vendors.nvidia.files.tables",
        VENDORS,
    ),
    ("kubelet/allocation/policies.py", "import cdigen.vendors.plugin", VENDORS),
    ("vendors/kernel/pci/place.py", "import cdigen.vendors.registry", SHARED),
    ("daemon/outputs.py", "import cdigen.page.routes", DOWN),
    ("topology/levels.py", "import cdigen.watch.triggers", DOWN),
    ("pipeline/naming.py", "import cdigen.pipeline.generate", STAGES),
    ("pipeline/newstage.py", "import cdigen.value", STAGES),
    ("nri/decision/audit.py", "import cdigen.nri.wire.messages", NRI),
    ("nri/decision/decide.py", "import cdigen.nri.events", NRI),
    ("nri/wire/session.py", "import cdigen.nri.decision.result.compat", NRI),
    ("service/process/log.py", "import cdigen.kubelet.resources.resource_set", DOWN),
    ("kubelet/resources/model.py", "import cdigen.kubelet.registration.state_machine", KUBELET),
    ("kubelet/newpart.py", "import cdigen.value", KUBELET),
    ("kubelet/resources/selection.py", "import cdigen.kubelet.resources.mig", RESOURCES),
    ("kubelet/resources/model.py", "import cdigen.kubelet.registration.events", KUBELET),
    ("kubelet/registration/state_machine.py", "import cdigen.kubelet.registration.sockets", REGISTRATION),
    ("kubelet/wire/messages.py", "import cdigen.kubelet.registration.events", KUBELET),
    ("kubelet/newmodule.py", "import cdigen.value", KUBELET),
    ("kubelet/wire/server.py", "import cdigen.nri.pods", DOWN),
    ("gpushare/reservations.py", "import cdigen.kubeapi.calls", DOWN),
    ("kubeapi/client.py", "import cdigen.gpushare.pods", DOWN),
    ("extender/index.py", "import cdigen.kubelet.pods", DOWN),
    ("kubelet/gpu_memory/reservations.py", "import cdigen.kubelet.gpu_memory.assign", GPU_MEMORY),
    ("gpushare/pods.py", "import cdigen.gpushare.reservations", GPUSHARE),
    ("extender/placement.py", "import cdigen.extender.index", EXTENDER),
    ("extender/newpart.py", "import cdigen.value", EXTENDER),
]


def lint(folder: Path) -> str:
    """Return the report of lint-imports on the package in FOLDER."""
    module("importlinter", "import-linter")
    program = Path(sys.executable).with_name("lint-imports")
    command = [str(program), "--config", str(PROJECT), "--no-cache", "--no-logo"]
    environment = {"PYTHONPATH": str(folder)}
    done = captured(command, cwd=folder, env=environment)
    return " ".join(done.stdout.split())


def copied(folder: Path) -> Path:
    """Copy the package into FOLDER; return the copy."""
    return shutil.copytree(
        REPOSITORY / "cdigen", folder / "cdigen", ignore=shutil.ignore_patterns("__pycache__")
    )


def test_the_package_keeps_every_contract(tmp_path: Path) -> None:
    report = lint(copied(tmp_path).parent)
    assert f"Contracts: {len(CONTRACTS)} kept, 0 broken." in report, report


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
    # A new module is in no layer. For an existing module, the report names the import.
    if (REPOSITORY / "cdigen" / module).exists():
        assert f"- {importer} -> {imported} (" in imports
    else:
        assert f"- {importer} " in unlisted


def test_every_contract_is_tested_with_a_forbidden_import() -> None:
    assert {contract for _, _, contract in FORBIDDEN} == {contract["name"] for contract in CONTRACTS}

"""The hooks that a host gets, and the findings if the requested hook cannot be used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.hosts.delivery import (
    DEBIAN,
    MODULE,
    NO_COMPAT,
    NVIDIAS,
    PYTHON,
    SCRIPT,
    hook_host,
    is_files,
    mounts,
    rules,
    spec,
)
from support.hosts.driver_files import put
from support.hosts.nvidia import discover

from cdigen.model.profile import DEFAULT
from cdigen.pipeline import generate
from cdigen.pipeline.delivery import DeliveryOptions
from cdigen.pipeline.generate import GenerateOptions
from cdigen.value import replace

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.usefixtures("real_nodes")


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Return the root of a Debian host with a GPU, cdigen's hook and NVIDIA's hook."""
    return hook_host(tmp_path)


@pytest.mark.parametrize("path", [SCRIPT, MODULE])
def test_a_host_with_an_incomplete_hook_gets_single_files_with_a_finding(host: Path, path: str) -> None:
    (host / f".{path}").unlink()
    edits, findings = spec(host)
    assert is_files(edits)
    assert "hooks" not in edits
    assert rules(findings) == [("info", "hook-missing"), NO_COMPAT]
    assert f"TRITON_LIBCUDA_PATH={DEBIAN}" in edits["env"]


def test_a_host_without_the_hooks_python_has_no_hook(host: Path) -> None:
    (host / f".{PYTHON}").unlink()
    edits, findings = spec(host, hook="cdigen")
    assert "hooks" not in edits
    assert rules(findings) == [("warning", "hook-missing"), NO_COMPAT]
    assert PYTHON in findings[0].message


@pytest.mark.parametrize("path", [SCRIPT, MODULE, PYTHON, "/usr/libexec/cdigen", "/usr"])
def test_a_hook_that_other_users_can_change_is_not_used(host: Path, path: str) -> None:
    (host / f".{path}").chmod(0o777)
    edits, findings = spec(host)
    assert "hooks" not in edits
    assert rules(findings) == [("warning", "hook-untrusted"), NO_COMPAT]


def test_a_hook_with_a_changeable_standard_library_is_not_used(host: Path) -> None:
    (host / f".{PYTHON}").rename(host / "usr/bin/python3.13")
    (host / f".{PYTHON}").symlink_to("python3.13")
    put(host / "usr/lib/python3.13/os.py", b"", 0o666)
    assert rules(spec(host)[1]) == [("warning", "hook-untrusted"), NO_COMPAT]


def test_a_hook_with_changeable_byte_code_is_not_used(host: Path) -> None:
    put(host / f".{MODULE.removesuffix('main.py')}__pycache__/main.cpython-313.pyc", b"", 0o666)
    assert rules(spec(host)[1]) == [("warning", "hook-untrusted"), NO_COMPAT]


def test_a_hook_with_a_circular_link_in_its_folder_is_not_used(host: Path) -> None:
    (host / f".{MODULE}").with_name("again").symlink_to(".")
    edits, findings = spec(host)
    assert "hooks" not in edits
    assert rules(findings) == [("warning", "hook-untrusted"), NO_COMPAT]


def test_the_target_of_a_linked_interpreter_in_the_host_is_checked(host: Path) -> None:
    (host / f".{PYTHON}").rename(host / "usr/bin/python3.13")
    (host / f".{PYTHON}").symlink_to("/usr/bin/python3.13")
    assert spec(host)[0]["hooks"]
    (host / "usr/bin/python3.13").chmod(0o777)
    assert rules(spec(host)[1]) == [("warning", "hook-untrusted"), NO_COMPAT]


COPY = "/usr/local/libexec/cdigen/python3"


@pytest.fixture
def copied(host: Path) -> Path:
    """Create a copy of the interpreter that users may not read, and a pyvenv.cfg with its original folder."""
    put(host / f".{COPY}", (host / f".{PYTHON}").read_bytes(), 0o711)
    put(host / "usr/local/libexec/cdigen/pyvenv.cfg", b"home = /usr/bin\n")
    return host


def test_a_copy_of_the_interpreter_runs_the_hook(copied: Path) -> None:
    edits, findings = spec(copied, python=COPY)
    (hook,) = edits["hooks"]
    assert (hook["path"], hook["args"][0]) == (COPY, COPY)
    assert rules(findings) == []


def test_an_outdated_copy_of_the_interpreter_is_not_used(copied: Path) -> None:
    put(copied / f".{PYTHON}", b"a newer one", 0o755)
    edits, findings = spec(copied, python=COPY)
    assert edits["hooks"][0]["path"] == PYTHON
    assert rules(findings) == [("warning", "hook-python-outdated")]
    assert f"install -m 0711 {PYTHON} {COPY}" in findings[0].hint


@pytest.mark.parametrize("path", [COPY, "/usr/local/libexec/cdigen/pyvenv.cfg", PYTHON])
def test_a_hook_with_a_changeable_copy_of_the_interpreter_is_not_used(copied: Path, path: str) -> None:
    (copied / "usr/local/libexec/cdigen/pyvenv.cfg").chmod(0o644)
    (copied / f".{path}").chmod(0o777)
    found = rules(spec(copied, python=COPY)[1])
    assert (("warning", "hook-untrusted") in found) == (path != PYTHON)


def test_the_spec_of_a_profile_without_hooks_has_no_hooks(host: Path) -> None:
    for layout in ("auto", "files", "hwcaps", "view"):
        assert "hooks" not in spec(host, hook="none", layout=layout)[0]


def test_the_hook_adds_the_folder_of_single_files_to_the_loader_cache(host: Path) -> None:
    edits, _ = spec(host, layout="files")
    assert is_files(edits)
    args = edits["hooks"][0]["args"]
    assert args[args.index("--update-ldcache") + 1 :][:2] == ["x86_64", DEBIAN]


def test_the_hook_has_the_steps_of_the_profile(host: Path) -> None:
    edits, _ = spec(host, hook_steps=("update-ldcache",), required_hook_steps=("update-ldcache",))
    options = [word for word in edits["hooks"][0]["args"] if word.startswith("--")]
    assert options == ["--update-ldcache", "--require"]


def test_the_modification_of_device_nodes_is_disabled_only_by_the_profile(host: Path) -> None:
    step = "disable-device-node-modification"
    assert f"--{step}" not in spec(host)[0]["hooks"][0]["args"]
    assert f"--{step}" in spec(host, hook_steps=(step,))[0]["hooks"][0]["args"]


def test_nvidias_hooks_have_their_known_arguments(host: Path) -> None:
    edits, findings = spec(host, hook="nvidia")
    assert [hook["args"][:2] for hook in edits["hooks"]] == [
        ["nvidia-cdi-hook", name]
        for name in ("create-symlinks", "enable-cuda-compat", "update-ldcache", "update-application-profile")
    ]
    assert f"{DEBIAN}/libcuda.so.550.163.01" in mounts(edits)
    assert f"{DEBIAN}/libcuda.so.1" not in mounts(edits)
    assert rules(findings) == []


def test_a_host_without_nvidias_hook_gets_single_files(host: Path) -> None:
    (host / f".{NVIDIAS}").unlink()
    edits, findings = spec(host, hook="nvidia")
    assert is_files(edits)
    assert rules(findings) == [("warning", "hook-missing"), NO_COMPAT]


def test_the_spec_for_another_host_has_a_hook_only_if_the_profile_requests_it(host: Path) -> None:
    inventory = {"nvidia": discover(host)}
    delivery = DeliveryOptions(hook_script=SCRIPT, hook_python=PYTHON, nvidia_hook=NVIDIAS)
    (plain,), _ = generate.generate_specs(inventory, host=None, delivery=delivery)
    assert "hooks" not in plain.document["containerEdits"]
    options = GenerateOptions(profiles=(replace(DEFAULT, hook="cdigen"),))
    (requested,), _ = generate.generate_specs(inventory, host=None, delivery=delivery, options=options)
    assert SCRIPT in requested.document["containerEdits"]["hooks"][0]["args"]
    assert is_files(requested.document["containerEdits"])

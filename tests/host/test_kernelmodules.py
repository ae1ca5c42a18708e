"""The configuration that excludes a kernel module: the kernel's command line and modprobe.d(5)."""

from pathlib import Path

import pytest

from cdigen.host.kernelmodules import module_exclusion
from cdigen.host.root import Root


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "etc/modprobe.d").mkdir(parents=True)
    return tmp_path / "etc/modprobe.d/gpu.conf"


def exclusion(file: Path, text: str) -> str:
    file.write_text(f"{text}\n")
    return module_exclusion(Root(str(file.parents[2])), "nvidia-uvm")


@pytest.mark.parametrize(
    "text",
    [
        "blacklist nvidia_uvm",
        "alias nvidia-uvm off",
        "install nvidia-uvm /bin/false",
        "install nvidia_uvm /usr/bin/true",
        "install nvidia-uvm :",
        "install nvidia_uvm false; true",
        "install nvidia_uvm /bin/true; echo excluded",
        'install nvidia-uvm /bin/sh -c "exit 0"',
        "install nvidia-uvm sh -c '/bin/true'",
        "install \\\n    nvidia-uvm \\\n    /bin/false",
        "# a comment\n\n\tblacklist  nvidia-uvm",
    ],
)
def test_a_line_that_excludes_the_module_is_reported_with_its_file_and_number(file: Path, text: str) -> None:
    line = 3 if text.startswith("#") else 1
    assert exclusion(file, text) == f"/etc/modprobe.d/gpu.conf:{line}"


@pytest.mark.parametrize(
    "text",
    [
        "# blacklist nvidia-uvm",
        "blacklist nvidia",
        "blacklist",
        "install nvidia-uvm",
        "install nvidia-uvm modprobe nvidia ; modprobe -i nvidia-current-uvm $CMDLINE_OPTS",
        "install nvidia-uvm /bin/true && modprobe --ignore-install nvidia-uvm",
        "install nvidia-uvm /sbin/false-start",
        "alias nvidia-uvm nvidia-current-uvm",
        "options nvidia-uvm off",
    ],
)
def test_any_other_line_excludes_nothing(file: Path, text: str) -> None:
    assert exclusion(file, text) == ""


@pytest.mark.parametrize("parameter", ["module_blacklist=", "modprobe.blacklist="])
@pytest.mark.parametrize("name", ["nvidia_uvm", "nvidia-uvm"])
def test_a_kernel_parameter_that_excludes_the_module_is_reported(
    tmp_path: Path, parameter: str, name: str
) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cmdline").write_text(f"ro {parameter}nouveau,{name} quiet\n")
    assert module_exclusion(Root(str(tmp_path)), "nvidia-uvm") == f"{parameter} on the kernel command line"

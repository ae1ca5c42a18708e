"""`cdigen resolve`: what a container would get from the NRI plugin, on a host that is a folder."""

from pathlib import Path

import pytest
from support.command.resolve import Resolve, document
from support.command.specs import configure

from cdigen.frontend.rundir import INVENTORY_FILE
from cdigen.model.errors import ConfigError

ASKED = ("--namespace", "ml", "--env", "NVIDIA_VISIBLE_DEVICES=1")


def test_it_prints_the_devices_and_what_asked_for_them(asked: Resolve) -> None:
    code, out = asked(*ASKED, "--env", "NVIDIA_REQUIRE_CUDA=cuda>=12.4")
    assert code == 0
    assert out.splitlines()[1].split() == ["nvidia.com/gpu=1", "1", "NVIDIA_VISIBLE_DEVICES"]


def test_its_json_has_the_same(asked: Resolve) -> None:
    assert document(asked("--json", *ASKED)) == {
        "outcome": "inject",
        "devices": ["nvidia.com/gpu=1"],
        "cause": "",
        "reason": "",
        "chosen": [{"device": "nvidia.com/gpu=1", "asked": "1", "by": "NVIDIA_VISIBLE_DEVICES"}],
        "notes": [],
    }


def test_annotations_count_for_the_container_that_they_name(asked: Resolve) -> None:
    note = ("--annotation", "devices.cdigen.dev/container.a=nvidia.com/gpu=0", "--namespace", "ml")
    assert document(asked("--json", *note, "--container", "a"))["devices"] == ["nvidia.com/gpu=0"]
    assert document(asked("--json", *note, "--container", "b"))["devices"] == []


def test_a_container_that_would_be_refused_ends_it_with_1_and_the_reason(asked: Resolve) -> None:
    code, out = asked(*ASKED, "--env", "NVIDIA_REQUIRE_CUDA=cuda>=13")
    assert (code, "cuda 12.4" in out) == (1, True)
    code, out = asked("--namespace", "ml", "--env", "NVIDIA_VISIBLE_DEVICES=7")
    assert (code, "nvidia.com/gpu has 0, 1, all" in out) == (1, True)


def test_what_does_not_count_gives_nothing(asked: Resolve) -> None:
    code, out = asked("--env", "NVIDIA_VISIBLE_DEVICES=all")
    assert (code, out) == (0, "no devices: the container asks for nothing that counts\n")
    assert (
        document(asked("--json", "--env", "NVIDIA_VISIBLE_DEVICES=all"))["notes"][0]["cause"] == "not_counted"
    )


def test_without_an_inventory_requirements_are_refused(asked: Resolve, resolve_host: Path) -> None:
    (resolve_host / "sys/module/nvidia/version").write_text("570.1\n")
    assert (
        document(asked("--json", *ASKED, "--env", "NVIDIA_REQUIRE_CUDA=cuda>=1"))["cause"] == "no_inventory"
    )
    (resolve_host / f"run/cdigen/{INVENTORY_FILE}").unlink()
    assert (
        document(asked("--json", *ASKED, "--env", "NVIDIA_REQUIRE_CUDA=cuda>=1"))["cause"] == "no_inventory"
    )
    assert document(asked("--json", *ASKED))["outcome"] == "inject"


def test_what_the_container_has_already_may_be_given(asked: Resolve) -> None:
    nodes = document(asked("--json", *ASKED, "--device-node", "/dev/nvidia1"))
    assert (nodes["outcome"], nodes["cause"]) == ("refuse", "nodes_without_driver")
    driver = ("--mount", "/usr/lib/libcuda.so.550:/usr/lib/libcuda.so.1")
    assert document(asked("--json", *ASKED, "--device-node", "/dev/nvidia1", *driver))["outcome"] == "served"
    assert document(asked("--json", *ASKED, "--cdi-device", "nvidia.com/gpu=1"))["outcome"] == "served"


def test_a_device_list_by_volume_mounts_counts(asked: Resolve) -> None:
    folder = "/var/run/nvidia-container-devices"
    variable = ("--namespace", "ml", "--env", f"NVIDIA_VISIBLE_DEVICES={folder}")
    assert document(asked("--json", *variable, "--mount", f"/dev/null:{folder}/1"))["chosen"] == [
        {"device": "nvidia.com/gpu=1", "asked": "1", "by": f"mount in {folder}"}
    ]
    assert document(asked("--json", *variable, "--mount", f"/dev/zero:{folder}/1"))["outcome"] == "refuse"
    assert asked("--namespace", "ml", "--mount", f"/dev/null:{folder}/1:0")[0] == 1


@pytest.mark.parametrize("text", ["/dev/null", "/dev/null:", ":/run/a", "dev/null:/run/a", "/dev/null:a", ""])
def test_what_is_no_mount_is_refused(asked: Resolve, text: str) -> None:
    with pytest.raises(ConfigError, match="is not SOURCE:PATH"):
        asked("--mount", text)


def test_rows_for_privileged_containers_alone_count_for_these(asked: Resolve, resolve_host: Path) -> None:
    configure(resolve_host, "nri: {allow: [{namespaces: [ml], privileged: true}]}\n")
    assert document(asked("--json", *ASKED))["outcome"] == "nothing"
    assert document(asked("--json", *ASKED, "--privileged"))["outcome"] == "inject"


@pytest.mark.parametrize("option", ["--env", "--annotation", "--label"])
@pytest.mark.parametrize("text", ["A", "=b", ""])
def test_what_is_no_pair_is_refused(asked: Resolve, option: str, text: str) -> None:
    with pytest.raises(ConfigError, match="is not KEY=VALUE"):
        asked(option, text)

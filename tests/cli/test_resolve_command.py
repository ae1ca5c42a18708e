"""`cdigen resolve`: the devices that the NRI plugin would inject on a host whose root is a folder."""

from pathlib import Path

import pytest
from support.command.resolve import Resolve, document
from support.command.specs import configure

from cdigen.model.errors import ConfigError
from cdigen.service.rundir import INVENTORY_FILE

ASKED = ("--namespace", "ml", "--env", "NVIDIA_VISIBLE_DEVICES=1")


def test_resolve_prints_the_devices_and_their_requests(run_resolve: Resolve) -> None:
    code, out = run_resolve(*ASKED, "--env", "NVIDIA_REQUIRE_CUDA=cuda>=12.4")
    assert code == 0
    assert out.splitlines()[1].split() == ["nvidia.com/gpu=1", "1", "NVIDIA_VISIBLE_DEVICES"]


def test_the_json_of_resolve_has_the_devices_and_their_requests(run_resolve: Resolve) -> None:
    assert document(run_resolve("--json", *ASKED)) == {
        "outcome": "inject",
        "devices": ["nvidia.com/gpu=1"],
        "cause": "",
        "reason": "",
        "chosen": [{"device": "nvidia.com/gpu=1", "requested": "1", "source": "NVIDIA_VISIBLE_DEVICES"}],
        "ignored_requests": [],
    }


def test_an_annotation_applies_to_the_named_container(run_resolve: Resolve) -> None:
    note = ("--annotation", "devices.cdigen.dev/container.a=nvidia.com/gpu=0", "--namespace", "ml")
    assert document(run_resolve("--json", *note, "--container", "a"))["devices"] == ["nvidia.com/gpu=0"]
    assert document(run_resolve("--json", *note, "--container", "b"))["devices"] == []


def test_a_refused_container_has_exit_code_1_and_a_reason(run_resolve: Resolve) -> None:
    code, out = run_resolve(*ASKED, "--env", "NVIDIA_REQUIRE_CUDA=cuda>=13")
    assert (code, "cuda 12.4" in out) == (1, True)
    code, out = run_resolve("--namespace", "ml", "--env", "NVIDIA_VISIBLE_DEVICES=7")
    assert (code, "nvidia.com/gpu has 0, 1, all" in out) == (1, True)


def test_an_ignored_request_has_exit_code_1_and_names_the_key(run_resolve: Resolve) -> None:
    code, out = run_resolve("--env", "NVIDIA_VISIBLE_DEVICES=all")
    assert (code, out) == (1, "no devices: the container requests no device that the policy permits\n")
    (note,) = document(run_resolve("--json", "--env", "NVIDIA_VISIBLE_DEVICES=all"))["ignored_requests"]
    assert note == {
        "cause": "not_permitted",
        "text": "variables ignored: no rule in nri.allow permits source 'environment' in namespace 'default'",
    }


@pytest.mark.parametrize(
    ("variable", "is_request"),
    [
        ("NVIDIA_VISIBLE_DEVICES=void", False),
        ("NVIDIA_VISIBLE_DEVICES=0,void", False),
        ("NVIDIA_VISIBLE_DEVICES=", False),
        ("NVIDIA_VISIBLE_DEVICES=, ,", False),
        ("NVIDIA_GDS=enabled", False),
        ("AMD_VISIBLE_DEVICES=none", False),
        ("AMD_VISIBLE_DEVICES=0", True),
        # This value requests the driver without a GPU.
        ("NVIDIA_VISIBLE_DEVICES=none", True),
    ],
)
def test_a_variable_that_requests_nothing_is_not_an_ignored_request(
    run_resolve: Resolve, variable: str, *, is_request: bool
) -> None:
    assert run_resolve("--env", variable)[0] == int(is_request)
    assert bool(document(run_resolve("--json", "--env", variable))["ignored_requests"]) == is_request


def test_without_a_current_inventory_requirements_are_refused(
    run_resolve: Resolve, resolve_host: Path
) -> None:
    (resolve_host / "sys/module/nvidia/version").write_text("570.1\n")
    assert (
        document(run_resolve("--json", *ASKED, "--env", "NVIDIA_REQUIRE_CUDA=cuda>=1"))["cause"]
        == "no_inventory"
    )
    (resolve_host / f"run/cdigen/{INVENTORY_FILE}").unlink()
    assert (
        document(run_resolve("--json", *ASKED, "--env", "NVIDIA_REQUIRE_CUDA=cuda>=1"))["cause"]
        == "no_inventory"
    )
    assert document(run_resolve("--json", *ASKED))["outcome"] == "inject"


def test_options_specify_nodes_mounts_and_cdi_devices_of_the_container(run_resolve: Resolve) -> None:
    nodes = document(run_resolve("--json", *ASKED, "--device-node", "/dev/nvidia1"))
    assert (nodes["outcome"], nodes["cause"]) == ("refuse", "nodes_without_driver")
    driver = ("--mount", "/usr/lib/libcuda.so.550:/usr/lib/libcuda.so.1")
    assert (
        document(run_resolve("--json", *ASKED, "--device-node", "/dev/nvidia1", *driver))["outcome"]
        == "served"
    )
    assert document(run_resolve("--json", *ASKED, "--cdi-device", "nvidia.com/gpu=1"))["outcome"] == "served"


def test_a_device_list_by_volume_mounts_is_a_request(run_resolve: Resolve) -> None:
    folder = "/var/run/nvidia-container-devices"
    variable = ("--namespace", "ml", "--env", f"NVIDIA_VISIBLE_DEVICES={folder}")
    assert document(run_resolve("--json", *variable, "--mount", f"/dev/null:{folder}/1"))["chosen"] == [
        {"device": "nvidia.com/gpu=1", "requested": "1", "source": f"mount in {folder}"}
    ]
    assert (
        document(run_resolve("--json", *variable, "--mount", f"/dev/zero:{folder}/1"))["outcome"] == "refuse"
    )
    assert run_resolve("--namespace", "ml", "--mount", f"/dev/null:{folder}/1:0")[0] == 1


@pytest.mark.parametrize("text", ["/dev/null", "/dev/null:", ":/run/a", "dev/null:/run/a", "/dev/null:a", ""])
def test_an_invalid_mount_is_refused(run_resolve: Resolve, text: str) -> None:
    with pytest.raises(ConfigError, match="is not SOURCE:PATH"):
        run_resolve("--mount", text)


def test_a_rule_for_privileged_containers_applies_only_to_them(
    run_resolve: Resolve, resolve_host: Path
) -> None:
    configure(resolve_host, "nri: {allow: [{namespaces: [ml], privileged: true}]}\n")
    assert document(run_resolve("--json", *ASKED))["outcome"] == "nothing"
    assert document(run_resolve("--json", *ASKED, "--privileged"))["outcome"] == "inject"


@pytest.mark.parametrize("option", ["--env", "--annotation", "--label"])
@pytest.mark.parametrize("text", ["A", "=b", ""])
def test_an_invalid_key_value_pair_is_refused(run_resolve: Resolve, option: str, text: str) -> None:
    with pytest.raises(ConfigError, match="is not KEY=VALUE"):
        run_resolve(option, text)

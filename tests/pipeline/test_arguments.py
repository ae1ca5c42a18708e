"""The arguments of 'docker run' for devices, in the form of nvidia-docker 1.0 and as CDI names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.values.inventories import inventories as any_inventories
from support.values.unhealthy_gpus import example, split

from cdigen.host.root import shown
from cdigen.model.errors import HostError
from cdigen.model.inventory import Inventory
from cdigen.model.profile import DEFAULT
from cdigen.pipeline.arguments import (
    FORMS,
    InvalidChoiceError,
    NamedDevice,
    arguments,
    named_devices,
    select_devices,
)
from cdigen.topology.matrix import devices_of
from cdigen.value import replace

NVIDIA = "debian13-8xh100"
VOLUMES = {"nvidia_driver": "/var/lib/cdigen/volumes/nvidia_driver"}
VOLUME = "--volume=/var/lib/cdigen/volumes/nvidia_driver:/usr/local/nvidia:ro"
CONTROL = [f"--device=/dev/{name}" for name in ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")]


def offered(inventories: dict[str, Inventory]) -> tuple[NamedDevice, ...]:
    return named_devices(inventories, (DEFAULT,), [device.accelerator for device in devices_of(inventories)])


def of(host: str = NVIDIA) -> tuple[NamedDevice, ...]:
    return offered(example(host))


def printed(requested: str, form: str = "cdi", host: str = NVIDIA) -> list[str]:
    return list(arguments(select_devices(of(host), requested.split(" ")), form, VOLUMES).options())


def uuid(number: int) -> str:
    return example()["nvidia"].accelerators[number].uuid or ""


@pytest.mark.parametrize(
    ("requested", "expected"),
    [
        pytest.param("", range(8), id="nothing is all"),
        pytest.param("*", range(8), id="a star is all"),
        pytest.param("1", [1], id="a number"),
        pytest.param("+01", [1], id="a number as Go reads it"),
        pytest.param("1 0 1", [0, 1], id="several, each once, in order"),
        pytest.param(uuid(3), [3], id="a UUID"),
        pytest.param(uuid(3)[:12], [3], id="the beginning of a UUID"),
        pytest.param("0000:43:00.0", [1], id="a PCI address"),
        pytest.param("nvidia.com/gpu=2", [2], id="a CDI name"),
    ],
)
def test_devices_are_selected_by_number_uuid_address_and_name(requested: str, expected: list[int]) -> None:
    assert [offer.number for offer in select_devices(of(), requested.split(" "))] == list(expected)


def test_an_amd_gpu_is_selected_by_its_id_as_rocminfo_prints_it() -> None:
    known = example("ubuntu-2xmi300x-cpx")["amd"]
    gpu = known.accelerators[1]
    assert gpu.uuid is not None
    word = f"GPU-{int(gpu.uuid, 16):016x}"
    assert printed(word, host="ubuntu-2xmi300x-cpx") == printed(gpu.uuid, host="ubuntu-2xmi300x-cpx")


def test_the_beginning_of_several_uuids_selects_the_first_device() -> None:
    known = example()["nvidia"]
    alike = [replace(gpu, uuid=f"GPU-1{gpu.uuid}") for gpu in known.accelerators]
    found = select_devices(offered({"nvidia": replace(known, accelerators=tuple(alike))}), ["GPU-1"])
    assert [offer.number for offer in found] == [0]


@pytest.mark.parametrize(
    "requested",
    [
        "8", "-1", "0x1", "1.0", "../..", "GPU-", "GPU-zz", "gpu-0a7e", "0\t1", "\u0661", "1_0", "9" * 30,
        "nvidia.com/gpu=8", "nvidia.com/gpu=all", "none", "=",
    ],
)  # fmt: skip
def test_an_unknown_device_is_refused_with_the_message_of_nvidia_docker_1_0(requested: str) -> None:
    with pytest.raises(InvalidChoiceError) as refused:
        select_devices(of(), [requested])
    assert str(refused.value) == f"invalid device: {shown(requested)}"


@pytest.mark.parametrize(("requested", "wrong"), [("* 0", "*"), ("0 9 8", "9"), ("0  1", "")])
def test_the_error_contains_the_invalid_request(requested: str, wrong: str) -> None:
    with pytest.raises(InvalidChoiceError) as refused:
        select_devices(of(), requested.split(" "))
    assert str(refused.value) == f"invalid device: {wrong}"


def test_an_unusable_device_does_not_change_the_numbers_of_other_devices() -> None:
    whole = example()["nvidia"]
    gpus = (replace(whole.accelerators[0], usable=False), *whole.accelerators[1:2])
    known = offered({"nvidia": replace(whole, accelerators=gpus)})
    assert [offer.number for offer in select_devices(known, [""])] == [1]
    assert [offer.number for offer in select_devices(known, ["1"])] == [1]
    with pytest.raises(InvalidChoiceError):
        select_devices(known, ["0"])


def test_the_arguments_of_the_cdi_form_are_cdi_names() -> None:
    assert printed("0 1") == ["--device=nvidia.com/gpu=0", "--device=nvidia.com/gpu=1"]
    assert printed("0", host="ubuntu-flex170-sriov") == ["--device=intel.com/gpu=0"]


def test_the_classic_form_has_the_volume_then_common_nodes_then_gpu_nodes() -> None:
    found = printed("1 0", "classic")
    assert found[:4] == [VOLUME, *CONTROL]
    assert [each for each in found if each[-1].isdigit() and "nvidia" in each] == [
        "--device=/dev/nvidia0",
        "--device=/dev/nvidia1",
    ]
    assert len(found) == len(set(found))


def test_devices_of_other_vendors_have_nodes_and_groups() -> None:
    found = printed("1", "classic", "ubuntu-2xmi300x-cpx")
    assert found[0] == "--device=/dev/kfd"
    assert found[-2:] == ["--group-add=44", "--group-add=105"]
    assert not [each for each in found if each.startswith("--volume")]


def test_nodes_with_colons_in_their_paths_are_omitted() -> None:
    found = printed("0", "classic", "ubuntu-flex170-sriov")
    assert "--device=/dev/dri/renderD128" in found
    assert not [each for each in found if ":" in each]


def test_the_number_of_a_split_gpu_selects_its_partitions() -> None:
    whole = example()["nvidia"]
    inventories = {
        "nvidia": replace(whole, accelerators=(split(whole.accelerators[0]), *whole.accelerators[1:2]))
    }
    known = offered(inventories)
    assert [offer.name for offer in select_devices(known, ["0"])] == [
        "nvidia.com/gpu=0:0",
        "nvidia.com/gpu=0:1",
    ]
    assert [offer.name for offer in select_devices(known, ["0:1"])] == ["nvidia.com/gpu=0:1"]
    assert printed("1", host="ubuntu-2xmi300x-cpx")[0] == "--device=amd.com/gpu=8"
    part = inventories["nvidia"].accelerators[0].partitions[1]
    assert [offer.known.partition for offer in select_devices(known, [part.uuid or ""])] == [part]
    found = arguments(select_devices(known, ["0:1"]), "classic", VOLUMES).devices
    assert {node.path for node in part.nodes} | {"/dev/nvidia0"} <= {*found}
    assert "/dev/nvidia1" not in found


def test_the_numbers_of_all_vendors_are_one_sequence() -> None:
    both = {**example(), **example("ubuntu-2xmi300x-cpx")}
    known = offered(both)
    assert {offer.name for offer in select_devices(known, ["8"])} == {
        f"amd.com/gpu={number}" for number in range(8)
    }
    with pytest.raises(InvalidChoiceError, match=r"^invalid volume: amd_driver$"):
        arguments(select_devices(known, ["8"]), "classic", VOLUMES, ["amd_driver"])
    assert [
        argument for argument in arguments(known, "classic", VOLUMES).options() if "volume" in argument
    ] == [VOLUME]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("requested", "wrong"), [("x", "x"), ("nvidia_driver nvidia", "nvidia"), ("* x", "*")]
)
def test_an_unknown_volume_is_refused_with_the_message_of_nvidia_docker_1_0(
    form: str, requested: str, wrong: str
) -> None:
    with pytest.raises(InvalidChoiceError) as refused:
        arguments(of(), form, VOLUMES, requested.split(" "))
    assert str(refused.value) == f"invalid volume: {shown(wrong)}"


@pytest.mark.parametrize("requested", ["", "*", "nvidia_driver", "nvidia_driver nvidia_driver"])
def test_a_volume_is_selected_by_its_name(requested: str) -> None:
    assert arguments(of(), "classic", VOLUMES, requested.split(" ")).volumes == (VOLUME.partition("=")[2],)


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(InvalidChoiceError, match=r"^invalid form: oci$"):
        arguments(of(), "oci", VOLUMES)


def test_the_classic_form_without_a_volume_is_an_error() -> None:
    with pytest.raises(HostError, match=r"nvidia\.com/gpu are in no volume"):
        arguments(of(), "classic", {})
    assert arguments(of(), "cdi", {}).devices[0] == "nvidia.com/gpu=0"


@pytest.mark.parametrize("path", ["/var/lib/c d/volumes/nvidia_driver", "/a:b/volumes/nvidia_driver"])
def test_a_volume_path_with_a_separator_is_refused(path: str) -> None:
    with pytest.raises(HostError, match="a separator of Docker's arguments"):
        arguments(of(), "classic", {"nvidia_driver": path})


def test_a_refusal_is_one_short_line_of_plain_text() -> None:
    bad = "<script>\x1b[31m\r\nSet-Cookie: a=b" + "x" * 10_000
    for requested in (
        lambda: select_devices(of(), [bad]),
        lambda: arguments(of(), bad, {}),
        lambda: arguments(of(), "cdi", {}, [bad]),
    ):
        with pytest.raises(InvalidChoiceError) as refused:
            requested()
        assert str(refused.value).isprintable()
        assert len(str(refused.value)) < 200


def test_ten_thousand_requests_are_handled() -> None:
    assert len(select_devices(of(), ["0", "1"] * 5000)) == 2


@given(st.lists(st.text()))
def test_any_requests_are_handled_or_refused(words: list[str]) -> None:
    known = of()
    try:
        found = select_devices(known, words)
    except InvalidChoiceError:
        return
    assert set(found) <= set(known)


@given(inventory=any_inventories, vendor=st.sampled_from(["nvidia", "amd", "intel"]))
def test_every_device_of_every_inventory_has_arguments(inventory: Inventory, vendor: str) -> None:
    for offer in offered({vendor: replace(inventory, vendor=vendor)}):
        assert arguments([offer], "cdi", {}).devices == (offer.name,)
        if not offer.volume:
            arguments([offer], "classic", {})

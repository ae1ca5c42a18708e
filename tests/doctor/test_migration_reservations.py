"""The replacements of device reservations give a container exactly the GPUs that the reservation gave it."""

import json

import pytest

from cdigen.doctor.migration.usage import find_requests

GPU = "nvidia.com/gpu"
UUIDS = ("GPU-3c7f6a52-1b1e-4c3a-9f6e-0d2b8f3a7c11", "MIG-9b1e3c7f-6a52-4c3a-9f6e-0d2b8f3a7c12")
FIRST_TWO = f'driver: cdi, and device_ids: ["{GPU}=0", "{GPU}=1"] instead of count: CDI has names, no counts'
UNMAPPED = (
    f'driver: cdi, and device_ids with "{GPU}=NAME" for each GPU of count or device_ids, whose value is not '
    "a plain number or name"
)


def named(*names: str) -> str:
    listed = ", ".join(f'"{GPU}={name}"' for name in names)
    return f"driver: cdi, and device_ids: [{listed}] instead of the numbers"


EVERY = f'driver: cdi, and device_ids: ["{GPU}=all"]'
EVERY_COUNT = f"{EVERY} instead of count: CDI has names, no counts"
# Keys of an item -> the replacement.
ITEMS = [
    ("count: all", EVERY_COUNT),
    ("count: -1", EVERY_COUNT),
    ("count: 1", named("0").replace("the numbers", "count: CDI has names, no counts")),
    ("count: 2", FIRST_TWO),
    ('"count": "2"', FIRST_TWO),
    ("count: 0", "remove the item"),
    ("count: 65", UNMAPPED),
    ("count: ${GPUS:-2}", UNMAPPED),
    ("count: *gpus", UNMAPPED),
    ("count:", UNMAPPED),
    ("device_ids: ['0', '3']", named("0", "3")),
    ('device_ids: ["0:1"]', named("0:1")),
    (f"device_ids: [{', '.join(UUIDS)}]", named(*UUIDS)),
    ("device_ids: ['all']", EVERY + " instead of the numbers"),
    ("device_ids: []", UNMAPPED),
    ("device_ids: *ids", UNMAPPED),
    ("device_ids: ['${GPU}']", UNMAPPED),
    ("device_ids: ['0', 'a b']", UNMAPPED),
    ("device_ids: ['0']\n{}count: 1", UNMAPPED),
    ("<<: *defaults\n{}count: 1", UNMAPPED),
    ("device_ids:\n{}  - '0'\n{}  - '3'", named("0", "3")),
    ("device_ids:\n{}- '0'\n{}- '3'", named("0", "3")),
    ("device_ids: [\n{}  '0',\n{}  '3'\n{}]", named("0", "3")),
    ("count: 2  # of eight", FIRST_TWO),
    ("options: {virtualization: 'false'}", EVERY),
]


def replaced(text: str) -> list[tuple[int, str]]:
    return [(one.line, one.replacement) for one in find_requests("compose.yaml", text)]


def item(indent: int, *keys: str) -> str:
    """Return a list item with KEYS in this order, between two other items."""
    column = " " * (indent + 2)
    lines = f"\n{column}".join(key.replace("{}", column) for key in keys)
    other = f"{' ' * indent}- driver: cdi\n{column}count: 7\n{column}capabilities: [tpu]\n"
    return f"devices:\n{other}{' ' * indent}- {lines}\n{other}"


@pytest.mark.parametrize(("keys", "replacement"), ITEMS)
@pytest.mark.parametrize("indent", [0, 10])
def test_the_keys_of_an_item_are_mapped_exactly(keys: str, replacement: str, indent: int) -> None:
    driver, capabilities = "driver: nvidia", "capabilities: [gpu]"
    for order in (
        (driver, keys, capabilities),
        (capabilities, keys, driver),
        (keys, driver, capabilities),
        (keys, capabilities),
        (capabilities, keys),
    ):
        assert [text for _, text in replaced(item(indent, *order))] == [replacement], order


@pytest.mark.parametrize(
    ("line", "replacement"),
    [
        ("devices: [{driver: nvidia, count: 2, capabilities: [gpu]}]", FIRST_TWO),
        ("- {capabilities: [gpu], device_ids: ['0', '3']}", named("0", "3")),
        ("- {driver: nvidia, device_ids: ['3']}  # count: 1", named("3")),
        ("device_requests: [{driver: nvidia, count: -1, capabilities: [[gpu]]}]", EVERY_COUNT),
        ("- {driver: nvidia, count: 1, device_ids: ['3']}", UNMAPPED),
    ],
)
def test_an_item_in_braces_is_mapped_exactly(line: str, replacement: str) -> None:
    assert replaced(line) == [(1, replacement)]


def test_two_items_in_one_line_have_their_own_replacements() -> None:
    line = "devices: [{driver: nvidia, count: 2}, {driver: nvidia, device_ids: ['3']}]"
    assert replaced(line) == [(1, FIRST_TWO), (1, named("3"))]


def test_a_reservation_in_json_is_mapped_exactly() -> None:
    document = {"devices": [{"driver": "nvidia", "device_ids": ["0", "3"], "capabilities": ["gpu"]}]}
    assert replaced(json.dumps(document, indent=2)) == [(4, named("0", "3"))]
    assert replaced(json.dumps(document)) == [(1, named("0", "3"))]


def test_the_key_gpus_of_a_service_is_mapped_exactly() -> None:
    items = "      - count: 2\n      - device_ids: ['3']\n"
    text = f"services:\n  a:\n    gpus:\n{items}  b:\n    image: c\n    count: 5\n"
    assert replaced(text) == [(3, FIRST_TWO), (3, named("3"))]
    assert replaced("    gpus: [{count: 2}]") == [(1, FIRST_TWO)]
    assert replaced("    gpus:\n    - driver: nvidia\n      count: 2\n") == [(2, FIRST_TWO)]
    assert replaced('  "gpus": "all"') == [(1, f"devices: [{GPU}=all]")]
    assert replaced("    gpus:\n    - driver: cdi\n      device_ids: ['nvidia.com/gpu=0']\n") == []


@pytest.mark.parametrize(
    ("line", "replacement"),
    [
        ("NV_GPU=1 nvidia-docker run image", f"docker run --device {GPU}=1"),
        ("NV_GPU='0 3' nvidia-docker run image", f"docker run --device {GPU}=0 --device {GPU}=3"),
        (f"NV_GPU={UUIDS[0]} nvidia-docker run image", f"docker run --device {GPU}={UUIDS[0]}"),
        (
            "NV_GPU=$GPU nvidia-docker run image",
            f"docker run --device {GPU}=NAME for each name in the value",
        ),
        (
            "nvidia-docker run image",
            f"docker run --device {GPU}=NAME for each GPU of NV_GPU; {GPU}=all only if NV_GPU is not set",
        ),
    ],
)
def test_nvidia_docker_is_mapped_exactly(line: str, replacement: str) -> None:
    assert replaced(line) == [(1, replacement)]


def test_a_runtime_is_not_replaced_by_all_gpus() -> None:
    ((_, replacement),) = replaced("    runtime: nvidia")
    assert replacement.startswith(f"remove it, and add devices: [{GPU}=NAME]")


@pytest.mark.parametrize(
    ("text", "is_all"),
    [
        ("docker run --device /dev/kfd --device /dev/dri image", True),
        ("docker run --device /dev/kfd --device /dev/dri/renderD128 image", False),
        ("AddDevice=/dev/dri/card1\nAddDevice=/dev/kfd\n", False),
        ("    devices:\n      - /dev/kfd\n      - /dev/dri/renderD129:/dev/dri/renderD129\n", False),
        ("    devices:\n      - /dev/kfd\n      - /dev/dri\n  b:\n      - /dev/dri/renderD128\n", True),
    ],
)
def test_a_single_node_of_amd_is_not_replaced_by_all_gpus(text: str, *, is_all: bool) -> None:
    ((_, replacement),) = replaced(text)
    assert replacement.startswith("--device amd.com/gpu=all") is is_all

"""The picture of a topology: its contents, its layout, and its security."""

import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.values.topology_machines import (
    FELL,
    VOLTA,
    VOLTA_SWITCHES,
    any_machine,
    dgx1,
    hives,
    nvswitch,
    pairs,
    partition,
    pcie,
    placed,
    rtx8000,
)

from cdigen.model.inventory import Accelerator
from cdigen.topology.labels import island_labels
from cdigen.topology.layout import Layout, laid_out
from cdigen.topology.matrix import MatrixDevice
from cdigen.topology.svg import _COLOURS, picture
from cdigen.value import replace

Machine = tuple[Accelerator, ...]
SVG = "{http://www.w3.org/2000/svg}"


def shown(devices: Machine) -> tuple[MatrixDevice, ...]:
    return tuple(
        MatrixDevice(label=f"GPU{device.index}", vendor="nvidia", accelerator=device) for device in devices
    )


def drawn(devices: Machine) -> ET.Element:
    return ET.fromstring(picture(shown(devices)))


def texts(root: ET.Element) -> list[str]:
    return [text.text or "" for text in root.iter(f"{SVG}text")]


def description(root: ET.Element) -> str:
    found = root.find(f"{SVG}desc")
    assert found is not None
    return found.text or ""


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        pytest.param(nvswitch(8, 18), ["A · NVLink switch, 18 links each"], id="NVSwitch"),
        pytest.param(nvswitch(4, 0), ["A · NVLink, number of links unknown"], id="unknown number"),
        pytest.param(rtx8000(), ["A · NVLink, 2 links", "B · NVLink, 2 links"], id="two bridges"),
        pytest.param(
            dgx1(VOLTA, VOLTA_SWITCHES), ["A · NVLink, 1 to 2 links from each to 4 others"], id="mesh"
        ),
        pytest.param(
            hives(8, 4, per_socket=4), [f"{x} · XGMI, 1 link between any two" for x in "AB"], id="XGMI"
        ),
        pytest.param(pcie(8, per_socket=4), [], id="no links"),
    ],
)
def test_the_label_of_an_island_describes_its_links(devices: Machine, expected: list[str]) -> None:
    assert [text for text in texts(drawn(devices)) if " · " in text] == expected


def test_numa_nodes_bridges_and_switches_are_boxes_with_their_names() -> None:
    root = drawn(tuple(replace(gpu, cpus="0-31") for gpu in pcie(8, per_socket=4, per_switch=2)))
    words = texts(root)
    assert [word for word in words if word.startswith("NUMA")] == ["NUMA node 0", "NUMA node 1"]
    assert [word for word in words if word.startswith("host")] == [
        "host bridge 0000:00",
        "host bridge 0000:40",
    ]
    assert len([word for word in words if word.startswith("PCIe switch")]) == 4
    assert words.count("CPUs 0-31") == 2


def test_functions_of_one_device_are_not_drawn_as_a_switch() -> None:
    card = placed(0, socket=0)
    functions = tuple(
        replace(card, index=n, address=f"0000:4d:00.{n}", pci_path=("pci0000:4c", "0000:4c:01.0"))
        for n in range(3)
    )
    assert "PCIe device 0000:4d:00" in texts(drawn(functions))


def test_devices_whose_numa_node_is_unknown_are_in_a_separate_box() -> None:
    root = drawn(pairs([4]))
    assert "NUMA node unknown" in texts(root)
    assert "NUMA node 0" not in picture(shown(pairs([4])))


def test_problems_of_devices_are_shown_as_text() -> None:
    unhealthy, unusable, *others = pcie(4, per_socket=4)
    machine = (
        replace(unhealthy, health="unhealthy", causes=(FELL,)),
        replace(unusable, usable=False),
        *others,
    )
    root = drawn(machine)
    assert {"unhealthy", "xid-79", "not usable"} <= set(texts(root))
    assert "GPU0 is unhealthy: xid-79. GPU1 is not usable." in description(root)
    assert "xid-79 since 2026-11-23T10:00:00Z: fell off the bus" in picture(shown(machine))
    # The two devices also differ from other devices in the pattern of their borders, not only in the colour.
    assert len(root.findall(f".//{SVG}rect[@stroke-dasharray]")) == 2


def test_each_usable_partition_is_a_square_and_each_unusable_partition_is_a_cross() -> None:
    parts = tuple(partition(n) for n in range(7))
    parts = (*parts[:2], replace(parts[2], health="unhealthy", causes=(FELL,)), *parts[3:])
    root = drawn((replace(placed(0, socket=0), partitioned=True, partitions=parts),))
    assert "7x 1g.10gb" in texts(root)
    assert len(root.findall(f".//{SVG}rect[@class='part']")) == 6
    assert len(root.findall(f".//{SVG}path[@class='cross']")) == 1
    assert "1 of the partitions of GPU0 cannot be used." in description(root)


def test_a_host_without_devices_has_a_picture_with_a_text() -> None:
    root = drawn(())
    assert texts(root) == ["GPU topology", "no device found"]
    assert description(root) == "No device found."


def test_the_models_of_the_devices_are_named_if_they_differ() -> None:
    one, other = pcie(2, per_socket=2)
    words = texts(drawn((replace(one, model="NVIDIA L40S"), replace(other, model="AMD Radeon Graphics"))))
    assert "1x NVIDIA L40S, 1x AMD Radeon Graphics" in words
    assert {"L40S", "Radeon Graphics"} <= set(words)


def test_a_long_label_is_shortened_in_the_middle_and_keeps_its_number() -> None:
    [gpu] = pcie(1, per_socket=1)
    root = ET.fromstring(picture((MatrixDevice(label="acme-accelerator12", vendor="acme", accelerator=gpu),)))
    assert "acme-…r12" in texts(root)


def test_a_long_model_is_shortened_to_its_box() -> None:
    """A W of DejaVu Sans has 10.9 pixels at size 11 (hmtx). Eight Ws and an ellipsis exceed 97 pixels."""
    one, other = pcie(2, per_socket=2)
    words = texts(drawn((replace(one, model="W" * 60), replace(other, model="i" * 60))))
    assert "W" * 7 + "…" in words
    assert "i" * 27 + "…" in words


# Accessibility and security.


def test_a_picture_has_a_title_and_a_description_for_screen_readers() -> None:
    root = drawn(nvswitch(8, 12))
    assert root.get("role") == "img"
    named = (root.get("aria-labelledby") or "").split()
    assert [part.get("id") for part in root if part.tag in {f"{SVG}title", f"{SVG}desc"}] == named
    assert description(root).startswith("NUMA node 0: GPU0, GPU1, GPU2, GPU3. NUMA node 1: GPU4,")


def test_each_colour_is_an_attribute_and_has_a_css_rule_for_light_and_dark_schemes() -> None:
    text = picture(shown(nvswitch(4, 12)))
    light, _, dark = text.partition("@media (prefers-color-scheme:dark)")
    used = set(re.findall(r'class="([a-z0-9]+)"', text))
    for name in used:
        assert f".{name}{{" in light
        assert f".{name}{{" in dark
        assert re.search(rf'class="{name}" (fill|stroke)="#', text)


# Class of a text -> classes of its possible backgrounds.
BACKGROUNDS = {
    "ink": ("page", "numa", "device"),
    "soft": ("page", "numa", "bridge", "switch", "device"),
    "bad": ("device",),
    "page": ("island0", "island1", "island2", "island3", "island4"),
}


@pytest.mark.parametrize("scheme", [2, 3])
@pytest.mark.parametrize(
    ("text", "area"), [(text, area) for text, areas in BACKGROUNDS.items() for area in areas]
)
def test_text_is_readable_in_light_and_dark_schemes(scheme: int, text: str, area: str) -> None:
    """WCAG 2.2, 1.4.3: a contrast of 4.5 to 1."""
    colours = {row[0]: row[scheme] for row in _COLOURS}
    lighter, darker = sorted((luminance(colours[text]), luminance(colours[area])), reverse=True)
    assert (lighter + 0.05) / (darker + 0.05) >= 4.5


def luminance(colour: str) -> float:
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@given(st.text(max_size=40), st.text(max_size=40), st.text(max_size=40))
def test_any_string_from_a_host_is_escaped_in_the_picture(model: str, address: str, cause: str) -> None:
    gpu = replace(
        placed(0, socket=0),
        model=model,
        address=address,
        health="unhealthy",
        causes=(replace(FELL, cause=cause, detail=f"</title><script>{cause}"),),
        cpus='"><a href="x">',
    )
    other = replace(placed(1, socket=0), model="<script>alert(1)</script>", uuid="]]>&x;")
    text = picture(shown((gpu, other)))
    root = ET.fromstring(text.encode())
    allowed = {"svg", "title", "desc", "style", "rect", "text", "g", "path"}
    assert {part.tag.removeprefix(SVG) for part in root.iter()} <= allowed
    attributes = {name for part in root.iter() for name in part.keys()}  # noqa: SIM118 - an element is not a dict
    assert not any("href" in name or name.startswith("on") for name in attributes)


def test_the_picture_has_no_external_references() -> None:
    text = picture(shown(nvswitch(16, 6)))
    assert "url(" not in text
    assert "@import" not in text
    assert re.findall(r"[a-z]+://[^\"' ]+", text) == ["http://www.w3.org/2000/svg"]


# The layout.

Rectangle = tuple[int, int, int, int]


def layout(devices: Machine) -> Layout:
    return laid_out(devices, 60, {each.members: each.text for each in island_labels(devices)})


def rectangles(devices: Machine) -> tuple[list[Rectangle], list[Rectangle], tuple[int, int]]:
    """Return the rectangles of the devices and of the islands, and the size of the picture."""
    found = layout(devices)
    boxes = [box for outer in found.boxes for box in outer.every() if box.kind == "device"]
    return (
        [(box.x, box.y, box.width, box.height) for box in boxes],
        [(island.x, island.y, island.width, 28) for island in found.islands],
        (found.width, found.height),
    )


def overlaps(one: Rectangle, other: Rectangle) -> bool:
    return all(one[n] < other[n] + other[n + 2] and other[n] < one[n] + one[n + 2] for n in (0, 1))


@given(any_machine(20))
def test_no_rectangles_overlap_or_exceed_the_picture(machine: Machine) -> None:
    devices, islands, (width, height) = rectangles(machine)
    assert len(devices) == len(machine)
    every = [*devices, *islands]
    for number, one in enumerate(every):
        assert one[0] >= 0
        assert one[1] >= 0
        assert one[0] + one[2] <= width
        assert one[1] + one[3] <= height
        assert not any(overlaps(one, other) for other in every[:number])


@given(any_machine(20))
def test_the_contents_of_a_box_are_within_its_borders_and_do_not_overlap(machine: Machine) -> None:
    found = layout(machine)
    for outer in found.boxes:
        for box in outer.every():
            for number, inner in enumerate(box.inside):
                assert box.x < inner.x
                assert box.y < inner.y
                assert inner.x + inner.width < box.x + box.width
                assert inner.y + inner.height < box.y + box.height
                where = (inner.x, inner.y, inner.width, inner.height)
                others = [(one.x, one.y, one.width, one.height) for one in box.inside[:number]]
                assert not any(overlaps(where, other) for other in others)


@given(any_machine(20))
def test_wires_lead_from_devices_to_their_island_and_through_no_other_device(machine: Machine) -> None:
    found = layout(machine)
    devices = {box.place: box for outer in found.boxes for box in outer.every() if box.kind == "device"}
    for island in found.islands:
        middles = {devices[place].x + devices[place].width // 2 for place in island.members}
        for wire in island.wires:
            assert wire.x in middles
            assert island.x < wire.x < island.x + island.width
            top, bottom = sorted((wire.device_y, wire.island_y))
            crossed = [box for box in devices.values() if box.x < wire.x < box.x + box.width]
            assert not any(box.y < bottom and top < box.y + box.height for box in crossed)


VIRTUAL = tuple(replace(gpu, numa_node=None, pci_path=("pci0000:00",)) for gpu in nvswitch(16, 6))


@pytest.mark.parametrize(
    ("machine", "widest"),
    [
        pytest.param(pairs([4]), 360, id="two"),
        pytest.param(nvswitch(8, 18), 600, id="eight"),
        pytest.param(pcie(8, per_socket=4, per_switch=2), 600, id="eight without links"),
        pytest.param(nvswitch(16, 6), 1100, id="sixteen"),
        pytest.param(VIRTUAL, 1100, id="sixteen of a virtual machine"),
    ],
)
def test_a_picture_is_no_wider_than_a_page(machine: Machine, widest: int) -> None:
    assert int(drawn(machine).get("width") or 0) <= widest

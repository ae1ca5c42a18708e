"""In a real browser, the daemon's page is legible on every screen and reloads itself."""

import pytest
from support.browser.chromium import Page
from support.browser.page_layout import LAYOUT_FAULTS, served
from support.values.page_samples import SAMPLES

from cdigen.page.page import page

WIDTHS = (320, 360, 800, 1600, 3840)


@pytest.mark.parametrize("name", SAMPLES)
def test_nothing_overflows_overlaps_or_fades_on_any_screen(tab: Page, name: str) -> None:
    with served(page(SAMPLES[name]())) as (address, _):
        for width in WIDTHS:
            for dark in (False, True):
                tab.show(address, width=width, dark=dark)
                assert tab.run(LAYOUT_FAULTS) == [], (width, dark)
    assert tab.complaints() == []


def test_an_entry_for_sixteen_devices_with_one_cause_takes_less_height_than_four_entries(tab: Page) -> None:
    heights = {}
    for name in ("degraded", "one-cause"):
        with served(page(SAMPLES[name]())) as (address, _):
            tab.show(address, width=375)
            heights[name] = tab.run("document.querySelector('.todo').getBoundingClientRect().height")
    assert heights["one-cause"] < heights["degraded"]


def test_the_page_is_light_or_dark_as_the_browser_prefers(tab: Page) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    ink = "getComputedStyle(document.querySelector('.wide .ink')).fill"
    with served(page(SAMPLES["healthy"]())) as (address, _):
        tab.show(address, width=800)
        assert [tab.run(background), tab.run(ink)] == ["rgb(255, 255, 255)", "rgb(28, 33, 40)"]
        tab.show(address, width=800, dark=True)
        assert [tab.run(background), tab.run(ink)] == ["rgb(13, 17, 23)", "rgb(230, 237, 243)"]


def test_the_page_reloads_itself_and_keeps_its_scroll_position(tab: Page) -> None:
    with served(page(SAMPLES["large"]()), reload_s=1) as (address, requested):
        tab.show(address, width=800)
        tab.run("scrollTo(0, 1500)")
        before = len(requested)
        tab.wait_for_load()
        tab.wait_for_load()
        assert len(requested) >= before + 2
        assert set(requested) <= {"/", "/favicon.ico"}
        assert tab.run("scrollY") == 1500


def test_a_screen_reader_finds_the_table_on_narrow_and_wide_screens(tab: Page) -> None:
    with served(page(SAMPLES["degraded"]())) as (address, _):
        for width in (360, 1600):
            tab.show(address, width=width)
            nodes = tab.send("Accessibility.getFullAXTree")["nodes"]
            roles = [node["role"]["value"] for node in nodes if not node["ignored"]]
            assert {"banner", "main", "contentinfo", "heading", "list"} <= set(roles)
            assert roles.count("columnheader") >= 3
            assert roles.count("rowheader") >= 8
            names = [node["name"]["value"] for node in nodes if node.get("role", {}).get("value") == "table"]
            assert names[0] == "Devices"

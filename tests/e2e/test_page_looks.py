"""The page in a real browser: it lies well and can be read on every screen, and reloads itself gently."""

import pytest
from support.browser.chromium import Page
from support.browser.page_layout import LOOKS, served
from support.values.page_samples import SAMPLES

from cdigen.daemon.page.page import page

WIDTHS = (320, 360, 800, 1600, 3840)


@pytest.mark.parametrize("name", SAMPLES)
def test_nothing_overflows_overlaps_or_fades_on_any_screen(tab: Page, name: str) -> None:
    with served(page(SAMPLES[name]())) as (address, _):
        for width in WIDTHS:
            for dark in (False, True):
                tab.show(address, width=width, dark=dark)
                assert tab.run(LOOKS) == [], (width, dark)
    assert tab.complaints() == []


def test_light_and_dark_follow_whoever_looks(tab: Page) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    ink = "getComputedStyle(document.querySelector('.wide .ink')).fill"
    with served(page(SAMPLES["healthy"]())) as (address, _):
        tab.show(address, width=800)
        assert [tab.run(background), tab.run(ink)] == ["rgb(255, 255, 255)", "rgb(28, 33, 40)"]
        tab.show(address, width=800, dark=True)
        assert [tab.run(background), tab.run(ink)] == ["rgb(13, 17, 23)", "rgb(230, 237, 243)"]


def test_the_page_reloads_itself_and_stays_where_it_was_read(tab: Page) -> None:
    with served(page(SAMPLES["large"]()), reload_s=1) as (address, asked):
        tab.show(address, width=800)
        tab.run("scrollTo(0, 1500)")
        before = len(asked)
        tab.wait_for_load()
        tab.wait_for_load()
        assert len(asked) >= before + 2
        assert set(asked) <= {"/", "/favicon.ico"}
        assert tab.run("scrollY") == 1500


def test_the_table_is_one_for_a_screen_reader_as_cards_too(tab: Page) -> None:
    with served(page(SAMPLES["degraded"]())) as (address, _):
        for width in (360, 1600):
            tab.show(address, width=width)
            nodes = tab.ask("Accessibility.getFullAXTree")["nodes"]
            roles = [node["role"]["value"] for node in nodes if not node["ignored"]]
            assert {"banner", "main", "contentinfo", "heading", "list"} <= set(roles)
            assert roles.count("columnheader") >= 3
            assert roles.count("rowheader") >= 8
            names = [node["name"]["value"] for node in nodes if node.get("role", {}).get("value") == "table"]
            assert names[0] == "Devices"

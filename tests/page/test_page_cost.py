"""The time and the memory that rendering a page takes."""

import gc
import time
import tracemalloc
from statistics import median

import pytest
from support.values.page_samples import healthy, large

from cdigen.page.page import page
from cdigen.page.view import PageView


def duration_ms(view: PageView) -> float:
    page(view)
    times = []
    for _ in range(9):
        start = time.perf_counter()
        page(view)
        times.append(time.perf_counter() - start)
    return median(times) * 1000


@pytest.mark.wall_clock
@pytest.mark.parametrize(
    ("view", "most_ms"),
    [pytest.param(healthy(), 30, id="8 GPUs"), pytest.param(large(), 100, id="16 GPUs and 64 partitions")],
)
def test_rendering_a_page_takes_less_than_the_time_limit(view: PageView, most_ms: float) -> None:
    assert duration_ms(view) < most_ms


def test_rendering_pages_leaks_no_memory() -> None:
    view = large()
    tracemalloc.start()
    try:
        # The first calls create objects that are kept.
        for _ in range(3):
            page(view)
        gc.collect()
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(20):
            page(view)
        gc.collect()
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 16_000
    assert peak - before < 2_000_000

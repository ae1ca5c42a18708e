"""Make the pictures of the daemon's page in docs/pictures with a real browser: `make pictures`.

The hosts are the samples of tests/support/values/page_samples.py. The time of each sample is fixed, so that a
picture changes only if the page changes.
"""

import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
# The import path of pytest's configuration (pyproject.toml).
sys.path.insert(0, str(REPOSITORY / "tests"))

from support.browser.chromium import Chromium
from support.browser.page_layout import served
from support.values.page_samples import SAMPLES

from cdigen.page.page import page

FOLDER = REPOSITORY / "docs/pictures"
# Picture -> sample, width and height of the window, and whether the theme is dark.
PICTURES = {
    "page": ("healthy", 1240, 800, False),
    "page-dark": ("healthy", 1240, 800, True),
    "page-degraded": ("degraded", 1000, 760, False),
    "page-phone": ("degraded", 390, 844, True),
}


def main() -> None:
    """Write every picture."""
    with Chromium() as browser, browser.page() as tab:
        for name, (host, width, height, dark) in PICTURES.items():
            with served(page(SAMPLES[host]())) as (address, _):
                tab.show(address, width=width, height=height, dark=dark)
                (FOLDER / f"{name}.png").write_bytes(tab.window())
            print(f"docs/pictures/{name}.png", file=sys.stderr)


if __name__ == "__main__":
    main()

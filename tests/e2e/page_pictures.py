"""Make the pictures of the daemon's page in docs/pictures, as a real browser shows it: `make pictures`.

The hosts are those of tests/daemon/page/samples.py, at the same moment each time: what changes in a picture
is what has changed in the page.
"""

import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
# As pytest has it (pyproject.toml).
sys.path[:0] = [str(REPOSITORY / folder) for folder in ("tests", "tests/e2e")]

from chromium import Chromium  # noqa: E402
from daemon.page.samples import SAMPLES  # noqa: E402
from looks import served  # noqa: E402

from cdigen.daemon.page.page import page  # noqa: E402

FOLDER = REPOSITORY / "docs/pictures"
# A picture: the host, how wide and high the window is, and whether it is dark.
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

"""Make etc/man and etc/completions from the parsers of the commands: ``python etc/help [--into FOLDER]``.

For developers: needs the modules of ``pip install '.[dev]'`` (docs/decisions/0009-generated-help.md). What
it makes is kept in the repository, so that nobody needs them to build or to install; a test holds the one
against the other.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))


def main() -> int:
    """Write every file that differs, and remove the pages of commands that are gone."""
    # Python 3.14 colours usage and help where the terminal or the environment says so.
    os.environ["NO_COLOR"] = "1"
    from completions import completions  # noqa: PLC0415 - the path above is for what it imports
    from manpages import pages  # noqa: PLC0415 - likewise

    parser = argparse.ArgumentParser(description="Make man pages and completions from the parsers.")
    parser.add_argument(
        "--into", metavar="FOLDER", type=Path, default=REPOSITORY / "etc", help="default: etc"
    )
    into: Path = parser.parse_args().into
    made = {f"man/{name}": text for name, text in pages().items()}
    made |= {f"completions/{name}": text for name, text in completions().items()}
    for page in (into / "man").glob("*.8"):
        if f"man/{page.name}" not in made:
            page.unlink()
    for name, text in made.items():
        file = into / name
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
            sys.stdout.write(f"{file}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

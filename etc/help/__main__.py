"""Make man pages and completions from the parsers, and what describes configuration and health from tables.

``python etc/help [--into FOLDER]``, for developers: needs the modules of ``pip install '.[dev]'``
(docs/decisions/0009-generated-help.md). What it makes is kept in the repository, so that nobody needs them to
build or to install; a test holds the one against the other.
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
    import causes  # noqa: PLC0415 - the path above is for what it imports
    import configuration  # noqa: PLC0415 - likewise
    from completions import completions  # noqa: PLC0415 - likewise
    from manpages import pages  # noqa: PLC0415 - likewise

    parser = argparse.ArgumentParser(description="Make what is made from parsers and tables.")
    parser.add_argument(
        "--into", metavar="FOLDER", type=Path, default=REPOSITORY, help="default: the repository"
    )
    into: Path = parser.parse_args().into
    made = {f"etc/man/{name}": text for name, text in pages().items()}
    made |= {f"etc/completions/{name}": text for name, text in completions().items()}
    page, health = "docs/configuration.md", "docs/health.md"
    made |= {
        "schemas/config.schema.json": configuration.schema(),
        page: configuration.page((REPOSITORY / page).read_text(encoding="utf-8")),
        health: causes.page((REPOSITORY / health).read_text(encoding="utf-8")),
        "etc/config.yaml": configuration.example(),
    }
    for old in (into / "etc/man").glob("*.8"):
        if f"etc/man/{old.name}" not in made:
            old.unlink()
    for name, text in made.items():
        file = into / name
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
            sys.stdout.write(f"{file}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

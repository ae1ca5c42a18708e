"""Generate man pages, completions and reference pages from the parsers and from tables.

Developers run ``python etc/help [--into FOLDER]``, which needs the modules of ``pip install '.[dev]'``
(docs/decisions/0009-generated-help.md). The generated files are in the repository, so builds and
installations do not need these modules. A test compares the files with the generator.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))


def main() -> int:
    """Write every file that differs, and remove the pages of commands that no longer exist."""
    # Python 3.14 colours usage and help according to the terminal or the environment.
    os.environ["NO_COLOR"] = "1"
    import causes  # noqa: PLC0415 - needs the path above
    import command_line  # noqa: PLC0415 - likewise
    import configuration  # noqa: PLC0415 - likewise
    import references  # noqa: PLC0415 - likewise
    from address import address, readdressed  # noqa: PLC0415 - likewise
    from completions import completions  # noqa: PLC0415 - likewise
    from manpages import pages  # noqa: PLC0415 - likewise

    from cdigen import DOCUMENTATION  # noqa: PLC0415 - likewise

    parser = argparse.ArgumentParser(description="Generate the files that come from parsers and tables.")
    parser.add_argument(
        "--into", metavar="FOLDER", type=Path, default=REPOSITORY, help="default: the repository"
    )
    into: Path = parser.parse_args().into
    made = {f"etc/man/{name}": text for name, text in pages().items()}
    made |= {f"etc/completions/{name}": text for name, text in completions().items()}
    health, command = "docs/reference/health-causes.md", command_line.PAGE
    made |= references.pages()
    made |= {
        "schemas/config.schema.json": configuration.schema(),
        command: command_line.page((REPOSITORY / command).read_text(encoding="utf-8")),
        health: causes.page((REPOSITORY / health).read_text(encoding="utf-8")),
        "etc/config.yaml": configuration.example(),
    }
    made |= {name: text for name, text in readdressed(REPOSITORY).items() if name not in made}
    made = {name: text.replace(DOCUMENTATION, address(REPOSITORY)) for name, text in made.items()}
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

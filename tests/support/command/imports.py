"""The modules that a run of the command imports."""

import subprocess
import sys

HEAVY = {
    "dataclasses",
    "inspect",
    "jsonschema",
    "pathlib",
    "shutil",
    "structlog",
    "tempfile",
    "typing",
    "watchdog",
    "yaml",
}


def imported(*arguments: str) -> set[str]:
    """Return the modules that a run of the command imports."""
    script = (
        "import sys; from cdigen.cli.main import main; code = main(sys.argv[1:]);"
        "print(*sys.modules, file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}; {script}", *arguments],
        check=True,
        capture_output=True,
        text=True,
    )
    return set(done.stderr.splitlines()[-1].split())

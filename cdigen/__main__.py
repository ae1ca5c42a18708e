"""Run the command ``cdigen`` for ``python -m cdigen``."""

from cdigen.cli.main import run

if __name__ == "__main__":
    run()

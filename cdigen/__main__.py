"""``python -m cdigen`` is ``cdigen``."""

from cdigen.cli.main import run

if __name__ == "__main__":
    run()

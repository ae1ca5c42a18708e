"""What every long-running process of cdigen is built on: run directory, signals, log, HTTP, systemd."""

"""One cycle of the daemon: observe the host, decide, write the specs, report."""

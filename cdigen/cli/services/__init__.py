"""The commands that run a service or show its state, one file per command."""

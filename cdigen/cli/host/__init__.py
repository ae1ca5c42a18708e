"""The commands that check or change the host, one file per command."""

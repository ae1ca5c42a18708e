"""The commands for specs and the inventory, one file per command."""

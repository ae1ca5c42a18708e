"""The stages that make CDI specs from the state of a host. ``generate`` has the list of the stages."""

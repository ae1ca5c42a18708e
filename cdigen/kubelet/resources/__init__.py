"""The advertised resources: other modules compute the values of ``model`` from the host's state."""

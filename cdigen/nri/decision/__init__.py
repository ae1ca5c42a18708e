"""Who gets which devices: from a container's request to the answer, as pure functions."""

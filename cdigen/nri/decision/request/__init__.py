"""The device requests of a container: annotations, environment, mounts, and the image."""

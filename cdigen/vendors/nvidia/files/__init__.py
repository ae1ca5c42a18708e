"""The driver's files on the host: libraries, programs, manifests, and the driver's own list."""

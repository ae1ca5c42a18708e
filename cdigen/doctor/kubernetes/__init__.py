"""The checks of a Kubernetes node."""

"""The devices of the host: GPUs, MIG instances, other families, and their nodes."""

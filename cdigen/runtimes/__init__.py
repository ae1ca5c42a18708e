"""What is known of the runtimes that read CDI specs: how they find devices in directories of files.

``lookup.scan`` reads directories as the CDI library in podman, Docker, containerd and CRI-O does.
"""

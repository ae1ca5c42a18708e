"""What is known of the runtimes that read CDI specs: how they find devices in directories of files.

``specfile`` reads one file as the CDI library in podman, Docker, containerd and CRI-O does, and
``lookup.scan`` the directories; ``lookup.clashes`` says what a write would meet there.
"""

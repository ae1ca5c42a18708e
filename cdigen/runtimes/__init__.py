"""What is known of the runtimes that read CDI specs: how they find devices in directories of files.

``installed`` finds the runtimes of a host, ``settings`` reads how they are configured, ``limits`` knows what
goes wrong in which release, ``resolve`` says what becomes of a device's name in one of them. ``specfile``
reads one file as the CDI library in podman, Docker, containerd and CRI-O does, and ``lookup.scan`` the
directories; ``lookup.clashes`` says what a write would meet there.
"""

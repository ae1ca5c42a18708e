"""The start-up hook, which prepares a container before the first process of the container runs.

``main`` is the program. docs/explanation/start-up-hook.md describes the hook. The hook runs with root
privileges on the host, but the image controls all files below the container's root. Therefore the hook treats
these files as hostile. ``container`` opens paths by file descriptors, component by component, and refuses
every symbolic link.

The hook runs at the start of every container, and imports take most of its time. Therefore the hook has few
modules and uses ``posix`` instead of ``os``. A module for a step is imported only if the step is requested.
"""

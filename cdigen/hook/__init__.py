"""The start-up hook: it prepares a container before its first process runs.

``main`` is the program; ``docs/architecture.md`` says where it stands. It runs with the host's root's
privileges while the image already decides what lies under the container's root, so nothing below that
root is believed: ``container`` walks it by descriptors, component by component, and refuses every link.
It runs at every container's start, so modules are few, ``posix`` does the work of ``os``, and what a
step needs is imported when that step is asked for: imports are most of its time.
"""

"""Sources that only say "look again, because ...": they know no vendor, no spec and no store.

Events carry no data and may be lost: whoever looks reads the host itself, and looks from time to time
without being told (docs/architecture.md).

- ``triggers``: ``Trigger``, and ``Inbox``, where the sources' triggers meet the one who looks;
- ``source``: what a source is; ``worker``: the thread that each has;
- ``files``: files and folders, by inotify; ``waypoints``: which folders that takes;
- ``uevents``: the kernel's and udev's events;
- ``poll``: what neither announces;
- ``supervisor``: starts the sources, and starts again those that fail;
- ``debounce``: when to look, after how much quiet; pure.
"""

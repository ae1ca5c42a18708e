"""Event sources that say "look at the host again, because ..."; they know no vendor, spec or store.

Events carry no data and may be lost: the daemon reads the host itself, and from time to time does so without
any event (docs/architecture.md).

- ``triggers``: ``Trigger``, an event's reason, and ``Inbox``, in which triggers wait for the reader;
- ``worker``: the thread of a source;
- ``files``: files and folders; ``inotify``: the kernel's events of folders; ``waypoints``: which folders to
  watch for files; ``comparison``: folders that cannot be watched;
- ``kernel_log``: lines of drivers in the kernel's log, the one source that carries data;
- ``uevents``: the kernel's and udev's events; ``poll``: changes that make no event at all;
- ``supervisor``: the protocol of a source; starts the sources, and restarts those that fail;
- ``debounce``: when to look after a burst of events, and how long to wait between attempts. Pure.
"""

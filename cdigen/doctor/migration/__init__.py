"""What of other tools is on a host, and the way to cdigen: ``plan.migration``; files: ``usage.judge``.

Nothing here changes the host. What each tool leaves where was read in its packages and sources;
docs/migrating.md says what differs from it.
"""

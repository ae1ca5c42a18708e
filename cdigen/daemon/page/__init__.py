"""The page that shows a host to whoever stands before it: HTML without scripts, whole without another file.

- ``view``: ``PageView``, all that the page shows, as one value;
- ``page``: ``page`` makes the document of it, ``POLICY`` is what a browser has to be told with it;
- ``attention``, ``devices``, ``sections``: its parts, from the top down, by ``words``, which all have;
- ``peers``: what the status files of the processes beside the daemon say;
- ``document``: what it shows, for programs;
- ``style``: its only style sheet;
- ``html``: elements, in which every text is escaped.

All of it is pure, but ``read_peers``.
"""

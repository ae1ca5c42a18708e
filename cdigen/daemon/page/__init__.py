"""The HTML page with the state of the host. It has no scripts, and needs no other file.

- ``view``: ``PageView``, the content of the page as a single value;
- ``page``: ``page`` returns the HTML document, ``POLICY`` is its Content-Security-Policy;
- ``action_items``, ``devices``, ``sections``: the parts of the page from top to bottom;
- ``components``: the components of these parts;
- ``device_users``: the users of devices from all sources;
- ``services``: the status files of the NRI plugin and the kubelet service;
- ``document``: the content of the page that no other JSON document has, as JSON;
- ``style``: the only style sheet of the page;
- ``html``: HTML elements, which escape all text.

All functions are pure except ``read_services``.
"""

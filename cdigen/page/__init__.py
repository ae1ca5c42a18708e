"""The status page and the API of nvidia-docker 1.0, which the daemon serves.

The page is HTML without scripts, and needs no other file.

- ``routes``: the HTTP routes except metrics and health;
- ``view``: ``PageView``, the content of the page as a single value;
- ``page``: ``page`` returns the HTML document, ``POLICY`` is its Content-Security-Policy;
- ``action_items``, ``devices``, ``sections``: the parts of the page from top to bottom;
- ``components``: the components of these parts;
- ``device_users``: the reader of all sources about the users of devices, and the devices that installed
  runtimes find in the specs; ``user_reports`` combines the sources;
- ``services``: the status files of the NRI plugin and the kubelet service;
- ``document``: the content of the page that no other JSON document has, as JSON;
- ``style``: the only style sheet of the page;
- ``html``: HTML elements, which escape all text;
- ``nvidia_docker``: the API of nvidia-docker 1.0.
"""

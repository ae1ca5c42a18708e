"""The GPU vendors, a folder for each vendor. ``base`` has the protocol, ``registry`` the list of vendors."""

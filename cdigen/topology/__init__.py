"""Where devices are and how they are linked, from inventories alone; nothing here reads a host.

- ``levels``: how near two devices are to each other (``relation``);
- ``matrix``: how they are linked, as a text that people know.
- ``choose``: which devices one container gets (``choose``), by ``bestset`` where only their numbers count.
- ``svg``: a picture of it (``picture``): ``labels`` are its words, ``boxes`` and ``layout`` where they stand.
"""

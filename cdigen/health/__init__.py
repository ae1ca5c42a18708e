"""Why devices are unhealthy, and until when.

``book`` holds it and advances with each event, pure; ``annotate`` writes it into inventories; ``book_file``
and ``marks`` keep it in the state directory; ``keeper`` is what the daemon holds.
"""

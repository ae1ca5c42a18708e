"""Edits of the runtimes' configuration files: bytes in, bytes out, and all that is not ours stays as it is.

``plan`` of a runtime's module gives the ``Change``s that a ``Wish`` needs, ``undoing`` takes them back.
``tomltext`` and ``jsontext`` edit text of those formats key by key.
"""

"""NVIDIA: GPUs of the ``nvidia`` kernel module and the files of its driver.

``vendor`` is the way in; ``kernel`` and ``gpus`` read what the module says, ``libraries`` and
``files`` find its user space by the tables in ``tables``, ``edits`` turns it all into drafts.
"""

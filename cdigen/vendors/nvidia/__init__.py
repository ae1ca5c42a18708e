"""NVIDIA: GPUs of the ``nvidia`` kernel module and the files of its driver.

``vendor`` is the way in; ``kernel_module``, ``gpus`` and ``mig`` read what the module says, ``nvml`` asks its
library, ``libraries`` and ``files`` find its user space by the tables in ``tables``, ``edits`` turns it all
into drafts. ``platforms`` has the hosts that are read otherwise: WSL2, Tegra boards.
"""

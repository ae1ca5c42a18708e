"""The vendor NVIDIA: GPUs of the ``nvidia`` kernel module, and the files of the driver.

``vendor`` implements the vendor protocol. ``kernel_module``, ``gpus`` and ``mig`` read the kernel module's
files. ``nvml`` queries NVML. ``libraries`` and ``files`` find the driver's files with the tables in
``tables``. ``edits`` creates the drafts of specs. ``platforms`` reads WSL2 hosts and Tegra boards.
"""

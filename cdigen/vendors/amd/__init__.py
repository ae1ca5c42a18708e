"""The vendor AMD: GPUs of the ``amdgpu`` kernel module, and their compute partitions.

``vendor`` implements the vendor protocol. ``kfd`` reads the topology of KFD, the compute part of the driver.
``listing`` reads the devices and their order in AMD's tools. ``discovery`` creates the inventory from ``kfd``
and ``listing``. ``edits`` creates the drafts of specs. ``libraries`` finds the host's ROCm, which containers
rarely need.
"""

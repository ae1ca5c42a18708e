"""AMD: GPUs of the ``amdgpu`` kernel module, and their compute partitions.

``vendor`` is the way in; ``kfd`` reads what the compute side of the driver (KFD) knows, ``listing`` what
devices there are and in which order AMD's tools count them, ``discovery`` puts both together, ``edits``
turns it into drafts. ``libraries`` finds the host's ROCm, which hardly anybody wants in containers.
"""

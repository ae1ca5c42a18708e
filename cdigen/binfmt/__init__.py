"""Pure functions that read binary formats.

``elf`` reads the headers of a shared object. ``ldcache`` reads the entries of the dynamic loader's cache.
``ldcache_merge`` adds entries to such a cache. ``cuda_compat`` reads the driver branches that a libcuda
supports. The modules use ``struct``. They import no other package of cdigen, because the start-up hook also
uses them. The input can come from a hostile container image, so every size has a limit. Each module raises
only one class of errors.
"""

"""Binary formats as pure functions: bytes in, values out.

``elf`` reads what a shared object says of itself, ``ldcache`` what the dynamic loader's cache lists;
``ldcache_merge`` adds entries to such a cache, ``cuda_compat`` reads which drivers a CUDA library allows.
``struct`` does the work and nothing else of cdigen is imported: the host side and the container
start-up hook share this folder. Input may come from a hostile container image, so every size is
bounded and each module raises one error of its own.
"""

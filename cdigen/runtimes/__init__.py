"""The runtimes that read CDI specs: their releases and configuration, and which devices each of them finds.

``releases`` is the table of their releases, ``installed`` finds those of a host, ``settings`` reads how they
are configured and ``edits`` changes it, both by ``documents``. ``scan`` finds which devices a runtime sees in
the spec directories, ``clashes`` with which specs there a new one would conflict.
"""

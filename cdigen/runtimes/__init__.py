"""What is known of the runtimes that read CDI specs, and what each of them makes of the spec directories.

``releases`` is the table of their releases, ``installed`` finds those of a host, ``settings`` reads how they
are configured and ``edits`` changes it, both by ``documents``. ``scan`` says which devices a runtime finds in
the spec directories, and ``clashes`` what a new spec would meet there.
"""

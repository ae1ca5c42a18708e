"""Read, check, build and write CDI documents, and predict what each runtime does with a spec file.

``reader`` turns bytes into a document, ``rules`` and ``schema`` check it, ``validation`` does all of that,
and ``loaders`` says what the CDI libraries in the runtimes do with the same bytes. ``build``, ``layout``
and ``hooks`` make a document from what a vendor offers, and ``render`` writes it. Nothing here
changes the host.
"""

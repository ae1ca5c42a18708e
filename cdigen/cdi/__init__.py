"""Functions that read, check, build and render CDI documents.

``reader`` parses bytes into a document. ``rules`` and ``schema`` check the document. ``validation`` parses
and checks a file. ``loaders`` predicts the behaviour of the runtimes' CDI libraries for the same bytes.
``build``, ``layout`` and ``hooks`` build a document from a vendor's draft. ``render`` converts the document
to bytes. No module of this package changes the host.
"""

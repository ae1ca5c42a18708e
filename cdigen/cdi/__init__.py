"""The rules of a CDI document: read it, judge it, and say what each runtime's loader would do.

``parse`` turns bytes into a JSON document, ``rules`` judges it without any library, ``schema`` judges
it a second time with jsonschema, ``version`` knows which feature needs which ``cdiVersion``, and
``loaders`` foretells what the CDI libraries inside the runtimes do with the same bytes. Every rule has
its name and its sentence in ``rulebook``. Nothing here reads or changes the host.
"""

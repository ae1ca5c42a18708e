"""The links between devices, and the choice of devices. The modules use inventories and read no host.

- ``levels``: the relation of two devices (``relation``);
- ``matrix``: all relations as text, in the form of nvidia-smi;
- ``choose``: the choice of devices for containers (``AvailableDevices``);
- ``bestset``: the search that ``choose`` uses; it reads only numbers;
- ``svg``: the picture (``picture``);
- ``labels`` and ``widths``: the texts of the picture and the widths of texts;
- ``layout``: the coordinates of the picture.
"""

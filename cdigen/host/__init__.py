"""The only code that reads the machine: /proc, /sys, /dev, and files through ``Root``.

The functions return plain values; the vendor packages interpret them.
"""

"""The only code that reads the machine: files through ``Root``, /proc, /sys and /dev.

Readers return plain values; the vendors' folders interpret them.
"""

"""The only code that reads the machine: files through ``Root``, /proc, /sys and /dev.

Readers return plain values; what the values mean to a vendor is the vendor's folder's business.
"""

"""Pure values that all stages exchange: inventories, CDI specs, profiles, findings, errors.

No module here reads the machine, imports another folder of cdigen, or depends on a vendor.
"""

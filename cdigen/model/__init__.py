"""Pure values that all stages exchange: inventories, CDI specs, profiles, findings, errors.

Nothing here reads the machine, imports another folder of cdigen, or knows a vendor.
"""

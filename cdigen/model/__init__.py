"""Pure values that every stage speaks in: inventories, CDI specs, profiles, findings, errors.

Nothing here reads the machine, imports another folder of cdigen, or knows a vendor.
"""

"""The values that cdigen saves between two starts."""

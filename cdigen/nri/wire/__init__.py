"""The wire of NRI: bytes of the runtime's socket to values, and back."""

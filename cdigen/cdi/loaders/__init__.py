"""Predict what each release of the CDI library, and so each runtime, does with a spec file."""

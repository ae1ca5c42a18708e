"""Modules that predict whether each release of the CDI library accepts a spec file."""

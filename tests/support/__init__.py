"""Helpers that tests share; README.md in this folder lists them."""

"""Typed code that is written from an API description."""

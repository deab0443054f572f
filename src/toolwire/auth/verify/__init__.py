"""Verifiers: a token goes in, the principal it stands for comes out."""

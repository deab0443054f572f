"""Adapters that give the tools of a toolset to agent frameworks."""

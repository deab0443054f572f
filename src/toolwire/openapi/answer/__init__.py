"""Answers of an API as results of a tool."""

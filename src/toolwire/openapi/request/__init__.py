"""Requests to an API: from arguments to a URL, headers and a body, and how they are sent."""

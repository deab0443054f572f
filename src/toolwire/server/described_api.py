"""An API whose description was read, as far as servers know it."""

from __future__ import annotations

from abc import ABC, abstractmethod


class DescribedApi(ABC):
    """An API whose description was read: what `toolwire.openapi.openapi()` returns."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The title of the API."""

    @property
    @abstractmethod
    def version(self) -> str:
        """The version of the API, as its description says."""

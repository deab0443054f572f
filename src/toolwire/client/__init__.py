"""The client: connect to a server, use it, and answer what it asks."""

from __future__ import annotations

from toolwire.client.approval import ToolCall
from toolwire.client.budget import Budget
from toolwire.client.cache import Cache
from toolwire.client.client import Client
from toolwire.client.errors import BudgetExceeded, Denied, InvalidResponse, Rejected, ResourceNotFound, ToolChanged
from toolwire.client.handlers import Accept, Cancel, Decline, Elicitation, Sampling
from toolwire.client.listen import Change, Subscription
from toolwire.client.middleware import ClientContext, ClientMiddleware
from toolwire.client.pins import Pins
from toolwire.client.skill_approval import SkillRequest
from toolwire.client.tasks import TaskCancelled, TaskHandle, TaskState

__all__ = [
    "Accept",
    "Budget",
    "BudgetExceeded",
    "Cache",
    "Cancel",
    "Change",
    "Client",
    "ClientContext",
    "ClientMiddleware",
    "Decline",
    "Denied",
    "Elicitation",
    "InvalidResponse",
    "Pins",
    "Rejected",
    "ResourceNotFound",
    "Sampling",
    "SkillRequest",
    "Subscription",
    "TaskCancelled",
    "TaskHandle",
    "TaskState",
    "ToolCall",
    "ToolChanged",
]

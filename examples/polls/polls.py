"""Polls: an extension of the protocol, with a half for servers and a half for clients."""

from collections import Counter

from toolwire import Client, Context, Server, types
from toolwire.client import Subscription
from toolwire.errors import ProtocolError

IDENTIFIER = "com.example/polls"


class VoteParams(types.RequestParams, kw_only=True):
    poll: str
    choice: str


class SeenParams(types.NotificationParams, kw_only=True):
    poll: str


class Tally(types.Result, kw_only=True):
    votes: dict[str, int]


class Polls:
    """The server's half: `Polls(server)` adds the extension to a server."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.votes: dict[str, Counter[str]] = {"lunch": Counter(), "logo": Counter()}
        self.seen: Counter[str] = Counter()
        extension = server.extension(IDENTIFIER, {"polls": list(self.votes)}, needs_client=False)
        extension.method("polls/vote", params=VoteParams)(self.vote)
        extension.notification("notifications/polls/seen", params=SeenParams)(self.note_seen)
        extension.listen_filter("polls", self.accept, legacy=True)

    async def vote(self, params: VoteParams, ctx: Context) -> Tally:
        if params.poll not in self.votes:
            raise ProtocolError(-32602, f"There is no poll {params.poll!r}; there are {', '.join(self.votes)}")
        votes = self.votes[params.poll]
        votes[params.choice] += 1
        changed = {"poll": params.poll, "votes": dict(votes)}
        self.server.publish("polls", params.poll, "notifications/polls/changed", changed)
        return Tally(votes=dict(votes))

    def note_seen(self, params: SeenParams) -> None:
        self.seen[params.poll] += 1

    def accept(self, asked: object) -> list[str]:
        return [poll for poll in self.votes if isinstance(asked, list) and poll in asked]


class PollsClient:
    """The client's half."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def vote(self, poll: str, choice: str) -> dict[str, int]:
        params = {"poll": poll, "choice": choice}
        return (await self.client.request("polls/vote", params, returns=Tally, extension=IDENTIFIER)).votes

    async def tell_seen(self, poll: str) -> None:
        await self.client.notify("notifications/polls/seen", {"poll": poll}, extension=IDENTIFIER)

    def changes(self, *polls: str) -> Subscription:
        return self.client.listen(extensions={"polls": list(polls)})

"""A server that mounts another one, which has the extension of polls."""

from polls import Polls
from toolwire import Server

team = Server("team")
polls = Polls(team)


@team.tool
async def seen() -> dict[str, int]:
    """Count how often each poll was seen."""
    return dict(polls.seen)


server = Server("office", instructions="Ask the team with polls.").mount(team, prefix="team")

if __name__ == "__main__":
    server.run()

"""Tests of the template-name server, in memory: no process, no network. `pytest` runs them."""

from toolwire.client.sync import Client

from server import server


def test_the_skill_is_what_its_entry_says() -> None:
    with Client(server) as client:
        (listed,) = client.skills.list()
        skill = client.skills.load(listed.uri)  # verified: digest, size and frontmatter
        assert skill.name == "template-skill"
        assert "Breaking" in (skill.read("references/groups.md").text or "")

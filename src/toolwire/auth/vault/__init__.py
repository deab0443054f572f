"""The vault: accounts at other services that tools and upstreams act with."""

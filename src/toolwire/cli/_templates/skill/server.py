"""The template-name server. It offers the skills in skills/. `toolwire dev server.py` shows them."""

from toolwire import Server

server = Server("template-name", version="0.1.0")
server.skills("skills", instructions=True)

if __name__ == "__main__":
    server.run()

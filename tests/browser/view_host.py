"""A small host of views for the tests: a page with one frame, which speaks the bridge of 2026-01-26.

The view gets its own path with its own policy as a header, in a frame without an origin. That is stricter than most
hosts are. What the view asks for is kept in `asked`, and its calls of tools go to the server.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from toolwire import Server
from toolwire.apps import host_policy
from toolwire.client.sync import Client
from toolwire.protocol.apps import APP_MIME_TYPE, UI_EXTENSION, view_address
from toolwire.testing.browser_views import NO_WEBRTC

PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Host</title><style>
body { margin: 0; background: %(paper)s; }
iframe { display: block; width: 100%%; height: 300px; border: 0; color-scheme: light dark; }
</style></head><body>
<iframe id="view" title="View" sandbox="allow-scripts"></iframe>
<script>
const frame = document.getElementById("view");
const send = (message) => frame.contentWindow.postMessage({ jsonrpc: "2.0", ...message }, "*");
const notify = (method, params) => send({ method: "ui/notifications/" + method, params });
window.notify = notify;
window.asked = [];
window.sizes = [];
addEventListener("message", async ({ source, data }) => {
  if (source !== frame.contentWindow || data?.jsonrpc !== "2.0") return;
  const { id, method, params } = data;
  if (method === "ui/notifications/size-changed") {
    window.sizes.push(params);
    frame.style.height = `${params.height}px`;
  } else if (method === "ui/notifications/initialized") {
    notify("tool-input", { arguments: %(arguments)s });
    const result = await window.firstResult();
    if (result) notify("tool-result", result);
  } else if (method === "ui/initialize") {
    send({ id, result: %(initialized)s });
  } else if (id !== undefined && method) {
    window.asked.push({ method, params });
    const answer = method === "tools/call" ? await window.callTool(params) : { result: {} };
    send({ id, ...answer });
  }
});
frame.src = "/view";
</script></body></html>"""

DARK = {"theme": "dark"}
#: The variables of a host with its own look.
OWN_LOOK = {
    "--color-background-primary": "light-dark(#fffaf0, #10231c)",
    "--color-background-secondary": "light-dark(#f6ecd9, #17332a)",
    "--color-text-primary": "light-dark(#3b2a14, #e9f5ee)",
    "--color-text-secondary": "light-dark(#6b5636, #a9c9ba)",
    "--border-radius-md": "12px",
}


class Host:
    """A host that shows one result of a tool."""

    def __init__(self, browser: Any, server: Server, tool: str, arguments: dict[str, Any], **options: Any) -> None:
        self.client = Client(server, extensions={UI_EXTENSION: {"mimeTypes": [APP_MIME_TYPE]}})
        self.client.__enter__()
        self.errors: list[str] = []
        self.result: Any = options.pop("result", None)
        self.is_silent: bool = options.pop("silent", False)
        self.fails: str | None = options.pop("fails", None)
        self._tool, self._arguments = tool, arguments
        (definition,) = (each for each in self.client.list_tools() if each.name == tool)
        self._definition = definition.to_dict()
        uri = view_address(self._definition["_meta"])
        assert uri is not None
        (read,) = self.client.read_resource(uri)
        assert isinstance(read.text, str)
        self._html = read.text
        context = {"theme": "light", "locale": "en-GB", "timeZone": "UTC", **options.pop("context", {})}
        context["toolInfo"] = {"id": 1, "tool": self._definition}
        capabilities = {"openLinks": {}, "serverTools": {}, "updateModelContext": {"text": {}}, "downloadFile": {}}
        initialized = {
            "protocolVersion": "2026-01-26",
            "hostInfo": {"name": "test", "version": "1"},
            "hostCapabilities": options.pop("capabilities", capabilities),
            "hostContext": context,
        }
        self._page = PAGE % {
            "paper": "#1c1c1f" if context["theme"] == "dark" else "#fff",
            "arguments": json.dumps(arguments),
            "initialized": json.dumps(initialized).replace("<", "\\u003c"),
        }
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        width = options.pop("width", 900)
        self.context = browser.new_context(
            viewport={"width": width, "height": options.pop("height", 700)}, color_scheme=context["theme"], **options
        )
        self.page = self.context.new_page()
        self.page.set_default_timeout(20_000)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._logged)
        self.page.expose_function("callTool", self._call)
        self.page.expose_function("firstResult", self._first_result)
        self.page.goto(f"http://127.0.0.1:{self._server.server_port}/")
        self.view = self.page.frame_locator("#view")

    def _logged(self, message: Any) -> None:
        if message.type == "error" and message.text != NO_WEBRTC:
            self.errors.append(message.text)

    @property
    def frame(self) -> Any:
        """The frame of the view, to run scripts in."""
        return next(each for each in self.page.frames if each.url.endswith("/view"))

    @property
    def asked(self) -> Any:
        """What the view asked for, after the handshake."""
        return self.page.evaluate("window.asked")

    def shot(self, file: Any = None) -> bytes:
        """Return a picture of the view at its own height, and keep it in a file."""
        picture: bytes = self.page.locator("#view").screenshot(path=file)
        return picture

    def close(self) -> None:
        self.context.close()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self.client.__exit__(None, None, None)

    def _call(self, params: Any) -> Any:
        if self.fails is not None:
            return {"error": {"code": -32000, "message": self.fails}}
        return {"result": self.client.request("tools/call", params)}

    def _first_result(self) -> Any:
        if self.is_silent:
            return None
        if self.result is not None:
            return self.result
        return self.client.request("tools/call", {"name": self._tool, "arguments": self._arguments})

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        host = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                is_view = self.path == "/view"
                if not is_view and self.path != "/":
                    self.send_response(204)  # No icon.
                    self.end_headers()
                    return
                body = (host._html if is_view else host._page).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                if is_view:
                    self.send_header("Content-Security-Policy", host_policy(None).header)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None: ...

        return Handler

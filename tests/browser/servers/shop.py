"""A server with a view that shows what its host sends, and uses everything that the view library has."""

from __future__ import annotations

from toolwire import Server
from toolwire.apps import Csp, Page

server = Server("shop")
cancelled: list[int] = []

ORDERS = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Orders</title></head><body>
<p id="input"></p><p id="result"></p><p id="called"></p><p id="read"></p><p id="said"></p>
<button id="cancel">Cancel</button><button id="use">Use everything</button><button id="grow">Grow</button>
<script>
const show = (name, value) => { document.getElementById(name).textContent = value; };
const press = (name, handler) => {
  document.getElementById(name).onclick = () => handler().catch((error) => show("said", error.message));
};
toolwire.options.displayModes = ["inline", "fullscreen"];
toolwire.on("input", (input) => show("input", JSON.stringify(input)));
toolwire.on("result", (result) => show("result", `${toolwire.data(result).orders} orders`));
press("cancel", async () => show("called", (await toolwire.callTool("cancel", { order: 7 })).content[0].text));
press("grow", async () => { document.body.style.height = "333px"; });
press("use", async () => {
  show("read", (await toolwire.readResource("order://7")).contents[0].text);
  await toolwire.openLink("https://shop.example/");
  await toolwire.download({ type: "resource", resource: { uri: "file:///a.txt", mimeType: "text/plain", text: "a" } });
  await toolwire.message("Cancel all of them");
  await toolwire.updateModelContext("7 is cancelled");
  await toolwire.updateModelContext(undefined, { cancelled: 7 });
  const { mode } = await toolwire.requestDisplayMode("fullscreen");
  toolwire.log("info", { mode });
  show("said", `all was said, ${mode}`);
  toolwire.close();
});
</script></body></html>"""

orders = server.app(
    Page("orders.html", ORDERS), csp=Csp(connect=["https://api.shop.example"]), permissions=["clipboardWrite"]
)


@server.tool(app=orders)
async def show_orders(month: str) -> dict[str, int]:
    return {"orders": len(month)}


@orders.tool
async def cancel(order: int) -> str:
    cancelled.append(order)
    return f"order {order} is cancelled"


@server.tool
async def cancelled_orders() -> list[int]:
    return cancelled


@server.resource("order://{number}")
def order(number: int) -> str:
    return f"order number {number}"

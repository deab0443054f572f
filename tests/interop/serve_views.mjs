// Serve views with @modelcontextprotocol/ext-apps, over stdio.
import { registerAppResource, registerAppTool, RESOURCE_MIME_TYPE } from "@modelcontextprotocol/ext-apps/server";
import { McpServer } from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";
import { z } from "zod";

const URI = "ui://shop/orders.html";

function make() {
  const server = new McpServer({ name: "foreign", version: "1.0.0" });
  const tool = (name, visibility, inputSchema, answer) =>
    registerAppTool(server, name, { description: name, inputSchema, _meta: { ui: { resourceUri: URI, visibility } } }, answer);
  const says = (text) => ({ content: [{ type: "text", text }] });
  tool("show_orders", undefined, z.object({}), async () => says("3 orders"));
  tool("cancel", ["app"], z.object({ order: z.number() }), async ({ order }) => says(`order ${order} is cancelled`));
  tool("pay", ["model"], z.object({}), async () => says("paid"));
  const ui = {
    csp: { connectDomains: ["https://api.shop.example"] },
    permissions: { clipboardWrite: {} },
    prefersBorder: true,
  };
  registerAppResource(server, "orders", URI, { _meta: { ui } }, async () => ({
    contents: [{ uri: URI, mimeType: RESOURCE_MIME_TYPE, text: "<!doctype html><p>orders</p>", _meta: { ui } }],
  }));
  server.registerResource("seven", "order://7", {}, async () => ({ contents: [{ uri: "order://7", text: "order number 7" }] }));
  return server;
}

serveStdio(make);

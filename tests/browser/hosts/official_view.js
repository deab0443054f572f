// A view built on `App` of @modelcontextprotocol/ext-apps. It judges what its host sends by the schemas of that library, and
// shows what it got.

import { App } from "@modelcontextprotocol/ext-apps";
import {
  McpUiHostContextChangedNotificationSchema,
  McpUiInitializeResultSchema,
  McpUiResourceTeardownRequestSchema,
  McpUiToolCancelledNotificationSchema,
  McpUiToolInputNotificationSchema,
  McpUiToolResultNotificationSchema,
} from "@modelcontextprotocol/ext-apps";

const SCHEMAS = {
  "ui/notifications/tool-input": McpUiToolInputNotificationSchema,
  "ui/notifications/tool-result": McpUiToolResultNotificationSchema,
  "ui/notifications/tool-cancelled": McpUiToolCancelledNotificationSchema,
  "ui/notifications/host-context-changed": McpUiHostContextChangedNotificationSchema,
  "ui/resource-teardown": McpUiResourceTeardownRequestSchema,
};
const got = (window.got = { faults: [], methods: [] });
const judge = (what, schema, value) => {
  const { success, error } = schema.safeParse(value);
  if (!success) got.faults.push(`${what}: ${error.message}`);
};
addEventListener("message", ({ data: { method, params, result } }) => {
  if (method) {
    got.methods.push(method);
    if (SCHEMAS[method]) judge(method, SCHEMAS[method], { method, params });
    else got.faults.push(`a host sent ${method}`);
  } else if (result?.hostContext) judge("ui/initialize", McpUiInitializeResultSchema, result);
});

const show = (name, text) => { document.getElementById(name).textContent = text; };
const app = new App({ name: "official", version: "1" }, { availableDisplayModes: ["inline", "fullscreen"] });
app.ontoolinput = ({ arguments: args }) => show("input", JSON.stringify(args));
app.ontoolresult = ({ structuredContent }) => show("result", `${structuredContent.orders} orders`);
app.onteardown = async () => (show("said", "goodbye"), {});

async function use() {
  const { content: [said] } = await app.callServerTool({ name: "cancel", arguments: { order_id: 7 } });
  show("called", said.text);
  const { contents: [order] } = await app.readServerResource({ uri: "order://7" });
  show("read", order.text);
  const { resources } = await app.listServerResources();
  got.resources = resources.map(({ uri }) => uri);
  await app.openLink({ url: "https://shop.example/" });
  await app.downloadFile({ contents: [{ type: "resource", resource: { uri: "file:///a.txt", text: "a" } }] });
  await app.sendMessage({ role: "user", content: [{ type: "text", text: "Cancel all" }] });
  await app.updateModelContext({ structuredContent: { cancelled: 7 } });
  const { mode } = await app.requestDisplayMode({ mode: "fullscreen" });
  await app.sendLog({ level: "info", data: mode });
  const refused = await app.callServerTool({ name: "forget", arguments: {} }).catch(({ message }) => message);
  show("said", `${mode}; ${refused}`);
}
document.querySelector("button").onclick = () => use().catch(({ stack }) => got.faults.push(stack));
app.connect().catch(({ stack }) => got.faults.push(stack));

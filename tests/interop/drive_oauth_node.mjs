// Sign in with a TypeScript client and use a guarded server, as drive_oauth_mcp2.py does.
//
// `node drive_oauth_node.mjs ADDRESS SECONDS` is run in the folder where the packages are. DRIVE_PACKAGE says which
// package: "sdk" is release 1, "client" release 2 (DRIVE_MODE as in drive_node.mjs).

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(`${process.cwd()}/`);
const load = async (name) => import(pathToFileURL(require.resolve(name)));
const [address, seconds] = process.argv.slice(2);
const first = process.env.DRIVE_PACKAGE === "sdk";
const part = async (one) => load(first ? `@modelcontextprotocol/sdk/client/${one}.js` : "@modelcontextprotocol/client");
const { Client } = await part("index");
const { StreamableHTTPClientTransport } = await part("streamableHttp");
const { UnauthorizedError } = await part("auth");

const callback = "http://127.0.0.1:7777/callback";
const visits = [];
let answer;

async function request(url, cookies, options = {}) {
  const cookie = [...cookies].map(([name, value]) => `${name}=${value}`).join("; ");
  const response = await fetch(url, { redirect: "manual", headers: cookie ? { cookie } : {}, ...options });
  for (const each of response.headers.getSetCookie()) {
    const [name, value] = each.split(";")[0].split("=");
    cookies.set(name, value);
  }
  return response;
}

// Somebody asks for consent: press the first button.
async function agree(page, cookies) {
  const fields = [...page.matchAll(/name="([^"]*)" value="([^"]*)"/g)].slice(0, 2).map(([, name, value]) => [name, value]);
  const [, action] = page.match(/action="([^"]*)"/);
  return request(action, cookies, { method: "POST", body: new URLSearchParams(fields) });
}

// The user's browser: keeps cookies, and follows redirects until they lead to the client.
async function visit(url) {
  visits.push((new URL(url).searchParams.get("scope") ?? "").split(" ").filter(Boolean).sort());
  const cookies = new Map();
  let location = String(url);
  while (!location.startsWith(callback)) {
    let response = await request(location, cookies);
    if (response.status === 200) response = await agree(await response.text(), cookies);
    location = new URL(response.headers.get("location"), location).href;
  }
  answer = new URL(location).searchParams;
}

class Provider {
  redirectUrl = callback;
  clientMetadata = {
    client_name: "drive-oauth",
    redirect_uris: [callback],
    grant_types: ["authorization_code", "refresh_token"],
    response_types: ["code"],
    token_endpoint_auth_method: "none",
  };
  clientInformation() { return this.client; }
  saveClientInformation(client) { this.client = client; }
  tokens() { return this.kept; }
  saveTokens(tokens) { this.kept = tokens; }
  saveCodeVerifier(verifier) { this.verifier = verifier; }
  codeVerifier() { return this.verifier; }
  redirectToAuthorization(url) { return visit(url); }
}

const provider = new Provider();

// The library leaves it to its user to come back with the code and to try again.
async function signedIn(use) {
  for (let attempt = 0; ; attempt++) {
    try {
      return await use();
    } catch (error) {
      const isUnauthorized = error instanceof UnauthorizedError || error?.name === "UnauthorizedError";
      if (!isUnauthorized || attempt > 3 || !answer) throw error;
      const transport = new StreamableHTTPClientTransport(new URL(address), { authProvider: provider });
      await (first ? transport.finishAuth(answer.get("code")) : transport.finishAuth(answer));
      answer = undefined;
    }
  }
}

async function connected() {
  const mode = { versionNegotiation: { mode: process.env.DRIVE_MODE ?? "auto" } };
  const client = new Client({ name: "drive-oauth", version: "1.0.0" }, first ? {} : mode);
  await client.connect(new StreamableHTTPClientTransport(new URL(address), { authProvider: provider }));
  return client;
}

const text = async (client, name, args = {}) => (await client.callTool({ name, arguments: args })).content[0].text;
const report = {};
const client = await signedIn(connected);
report.tools = (await client.listTools()).tools.map((tool) => tool.name);
report.whoami = await signedIn(() => text(client, "whoami"));
report.write = await signedIn(() => text(client, "write", { text: "this" }));
report.visits = [...visits];
await new Promise((resolve) => setTimeout(resolve, Number(seconds) * 1000));
report.later = await signedIn(() => text(client, "whoami"));
report.visits_later = visits.length;
console.log(JSON.stringify(report));
process.exit(0);

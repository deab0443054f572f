// Requests to the inspector. The token comes in the address. The page removes it there at once and sends it in a header.

const KEY = "toolwire-token";

function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    sessionStorage.setItem(KEY, given);
    history.replaceState(null, "", location.pathname);
  }
  return sessionStorage.getItem(KEY) ?? "";
}

const token = takeToken();

/** The name of this page. The inspector closes the views of a page that is gone, also when the browser crashed. */
export const PAGE = Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function ask(path, options = {}) {
  const headers = { "X-Toolwire-Token": token, ...options.headers };
  const response = await fetch(path, { ...options, headers, credentials: "omit", cache: "no-store" });
  if (response.ok) return response;
  const text = await response.text();
  let message = text;
  try {
    message = JSON.parse(text).error ?? text;
  } catch {
    // A refusal is plain text.
  }
  throw new Refused(response.status, message);
}

/** Asks for an operation; gives its answer, or throws `Refused` with a sentence for people. */
export async function post(operation, body = {}, signal = undefined) {
  const headers = { "Content-Type": "application/json" };
  const response = await ask(`api/${operation}`, { method: "POST", headers, body: JSON.stringify(body), signal });
  return response.json();
}

/** Asks for an operation while the page is left, when no answer can be read any more. */
export function postLast(operation, body) {
  const headers = { "Content-Type": "application/json" };
  ask(`api/${operation}`, { method: "POST", headers, body: JSON.stringify(body), keepalive: true }).catch(() => {});
}

/** Fetches the whole of something that was cut for the page. */
export async function part(query) {
  return (await ask(`api/part?${new URLSearchParams(query)}`)).blob();
}

/** Fetches the session as a file, without secrets. */
export async function exported() {
  return (await ask("api/export")).blob();
}

/** Reads the events for as long as the page is open; calls `onlost` when the connection is lost. */
export async function follow(onevent, onlost) {
  for (let pause = 500; ; pause = Math.min(pause * 2, 5000)) {
    try {
      const response = await ask(`api/events?page=${PAGE}`);
      pause = 500;
      await lines(response.body, (line) => onevent(JSON.parse(line)));
      onlost(null);
    } catch (error) {
      onlost(error);
      if (error instanceof Refused && error.status === 401) return;
    }
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

async function lines(stream, online) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let held = [];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const pieces = value.split("\n");
    held.push(pieces[0]);
    for (let index = 1; index < pieces.length; index += 1) {
      const line = held.join("");
      held = [pieces[index]];
      if (line) online(line);
    }
  }
}

// The way between a view in its frame and the inspector. It moves messages and judges none, except their number and size.

import { post } from "./api.js";
import { on } from "./store.js";
import { isFromView, limiter } from "./rate.js";

const RESERVED = "ui/notifications/sandbox-";
const MAX_BATCH = 4_000_000;
// Milliseconds between two questions whether the frame responds, and after which a view that does not is stopped.
const PING_EVERY = 2_000;
const MAX_SILENCE = 6_000;

/** Connects a frame with its view in the inspector; `opened` is the answer of "openView". `onclosed` is called when the
 * inspector does not have the view any more. `mayShow` is asked whether a view may be shown, with whether the browser
 * keeps it from sending data past its policy.
 *
 * The listener is there before the frame loads, so that no message is missed. */
export function connectFrame(frame, opened, onclosed, mayShow) {
  const { view, frame: place } = opened;
  const { limits } = place.view;
  const mayPass = limiter(limits);
  const mayPassOutside = limiter(limits);
  const queue = [];
  let isOpen = true;
  let isOutside = false;
  let isMoving = false;
  let isWanted = false;
  let pinged = null;
  const pinging = setInterval(ping, PING_EVERY);

  /** Asks the first script of the view, which the inspector wrote, whether the view responds. */
  function ping() {
    if (pinged === null || document.hidden) return;
    if (pinged && performance.now() - pinged > MAX_SILENCE) return stop("hung");
    if (pinged) return;
    pinged = performance.now();
    send({ jsonrpc: "2.0", method: `${RESERVED}ping`, params: {} });
  }

  function onmessage(event) {
    if (event.source !== frame.contentWindow) {
      if (isFromView(event, frame.contentWindow, place.view.origin)) outside();
      return;
    }
    if (event.origin !== place.origin) return;
    if (!mayPass()) return stop("flooded");
    const { data } = event;
    // The sandbox page hands on what a view sent as a text, and objects are its own messages.
    if (typeof data !== "string") return fromSandbox(String(data?.method).slice(RESERVED.length), data?.params);
    queue.push(data);
    move();
  }

  /** A view can write to every window that it can name. What does not come through the sandbox page is not read. */
  function outside() {
    if (!mayPassOutside()) return stop("flooded");
    if (isOutside) return;
    isOutside = true;
    report("outside");
  }

  function fromSandbox(name, params) {
    if (name === "proxy-ready") {
      if (!mayShow(params?.guarded === true)) return stop("unguarded");
      send({ jsonrpc: "2.0", method: `${RESERVED}resource-ready`, params: place.view });
      pinged = 0;
    } else if (name === "pong") pinged = 0;
    else if (name === "console") report("console", params?.text);
    else if (["flooded", "large", "navigated"].includes(name)) stop(name, params?.text);
  }

  function send(message) {
    frame.contentWindow?.postMessage(message, place.origin);
  }

  function report(kind, text = "") {
    post("viewReport", { view: view.id, kind, text }).catch(() => {});
  }

  function stop(kind, text) {
    if (!isOpen) return;
    end();
    report(kind, text);
  }

  function end() {
    isOpen = false;
    clearInterval(pinging);
    window.removeEventListener("message", onmessage);
    off();
    frame.remove();
  }

  /** Moves messages in both directions, one request at a time, so that they keep their order. */
  async function move() {
    isWanted = true;
    if (isMoving) return;
    isMoving = true;
    try {
      while (isOpen && (isWanted || queue.length)) {
        isWanted = false;
        const { messages, closed } = await post("viewMessages", { view: view.id, messages: batch(queue) });
        for (const message of messages) if (isOpen) send(message);
        // The inspector says so by an event as well, with the reason, but an event can be missed.
        if (closed && isOpen) onclosed();
      }
    } catch {
      // The inspector has ended, which the page shows by itself.
    }
    isMoving = false;
  }

  const off = on("view-outbox", (ids) => {
    if (ids.includes(view.id)) move();
  });
  window.addEventListener("message", onmessage);
  frame.src = place.src;
  return { end };
}

/** Takes the first messages of a queue, as many as one request may have. */
function batch(queue) {
  let size = 0;
  let count = 0;
  while (count < queue.length && (count === 0 || size + queue[count].length <= MAX_BATCH)) {
    size += queue[count].length;
    count += 1;
  }
  return queue.splice(0, count);
}

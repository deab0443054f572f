// The sandbox page between the inspector and a view. It has an origin of its own, and the view has another one, or none.
//
// It relays every message, except those whose names start with `ui/notifications/sandbox-`. This page and the inspector
// alone send these. It relays a message of a view as text, so that the inspector never holds an object of a view. This
// page ends a view that floods it, sends too much at once, or goes to another page.

import { isFromView, limiter } from "./rate.js";
import { written } from "./written.js";

const RESERVED = "ui/notifications/sandbox-";
// Milliseconds that the browser gets to report something that it blocked.
const PATIENCE = 2_000;
const { host, view } = document.body.dataset;
const target = view === "null" ? "*" : view;
let frame = null;
let mayPass = null;
let mostBytes = 0;
let loads = 0;

function tell(name, params = {}) {
  parent.postMessage({ jsonrpc: "2.0", method: RESERVED + name, params }, host);
}

function stop(name, text = "") {
  if (!frame) return;
  frame.remove();
  frame = null;
  tell(name, { text });
}

function show({ url, sandbox, csp, allow, limits }) {
  if (frame) return;
  mayPass = limiter(limits);
  mostBytes = limits.bytes;
  frame = document.createElement("iframe");
  frame.setAttribute("sandbox", sandbox);
  if (csp) frame.setAttribute("csp", csp);
  if (allow) frame.setAttribute("allow", allow);
  frame.referrerPolicy = "no-referrer";
  frame.title = "The view";
  // The policy of this page blocks every other address. A second load is a page that the policy cannot see, or an error.
  frame.addEventListener("load", () => {
    loads += 1;
    if (loads > 1) setTimeout(stop, 100, "navigated");
  });
  frame.src = url;
  document.body.append(frame);
}

function relay(data) {
  const text = written(data, mostBytes);
  if (text === null) stop("large");
  else if (!mayPass(text.length)) stop("flooded");
  else parent.postMessage(text, host);
}

const isReserved = (data) => typeof data?.method === "string" && data.method.startsWith(RESERVED);

function fromHost(data) {
  if (isReserved(data) && data.method === `${RESERVED}resource-ready`) show(data.params);
  // The frame shows the view alone: the policy of this page blocks every other address.
  else if (!isReserved(data) || data.method === `${RESERVED}ping`) frame?.contentWindow.postMessage(data, target);
}

function fromView(data) {
  if (!isReserved(data)) relay(data);
  else if (data.method === `${RESERVED}pong`) tell("pong");
  else if (data.method === `${RESERVED}console`) tell("console", { text: String(data.params?.text).slice(0, 500) });
}

addEventListener("message", (event) => {
  const { source, origin } = event;
  if (source === parent && origin === host) fromHost(event.data);
  else if (frame && isFromView(event, frame.contentWindow, view)) {
    // Frames in the view are counted as the view is, and nothing that they send is read.
    if (!mayPass()) stop("flooded");
    else if (source === frame.contentWindow && origin === view) fromView(event.data);
  }
});

document.addEventListener("securitypolicyviolation", (event) => {
  if (event.effectiveDirective === "frame-src") stop("navigated", event.blockedURI);
});

/** Returns whether this browser has what keeps a view from sending data past its policy. */
function isGuarded() {
  if (!("csp" in HTMLIFrameElement.prototype && window.trustedTypes && window.ReportingObserver)) return false;
  return new Promise((resolve) => {
    // The header Connection-Allowlist of this page blocks WebRTC, which a browser that knows the header reports.
    new ReportingObserver(() => resolve(true), { types: ["connection-allowlist"], buffered: true }).observe();
    setTimeout(resolve, PATIENCE, false);
    try {
      new RTCPeerConnection().close();
    } catch {
      // A browser may report it and refuse it.
    }
  });
}

tell("proxy-ready", { guarded: await isGuarded() });

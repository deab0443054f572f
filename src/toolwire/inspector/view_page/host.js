// The first script of a view: it tells the inspector which errors the page has, and that its scripts come to an end.
(() => {
  const MOST = 50;
  const host = window.parent;
  let count = 0;

  function report(text) {
    count += 1;
    if (count > MOST) return;
    const message = count === MOST ? "There are more errors, which are not reported." : text.slice(0, 500);
    host.postMessage({ jsonrpc: "2.0", method: "ui/notifications/sandbox-console", params: { text: message } }, "*");
  }

  function words(values) {
    return values.map((value) => (value instanceof Error ? `${value.name}: ${value.message}` : text(value))).join(" ");
  }

  function text(value) {
    if (typeof value === "string") return value;
    try {
      return JSON.stringify(value) ?? String(value);
    } catch {
      return Object.prototype.toString.call(value);
    }
  }

  window.addEventListener(
    "error",
    (event) => {
      if (event.message) report(`${event.message}${event.lineno ? `, line ${event.lineno}` : ""}`);
      else report(`Could not load ${event.target?.src || event.target?.href || "a file"}`);
    },
    true,
  );
  window.addEventListener("unhandledrejection", (event) => report(`Unhandled: ${words([event.reason])}`));
  for (const level of ["error", "warn"]) {
    const own = console[level];
    console[level] = (...values) => {
      report(`console.${level}: ${words(values)}`);
      own.apply(console, values);
    };
  }
  window.addEventListener("message", (event) => {
    if (event.source !== host || event.data?.method !== "ui/notifications/sandbox-ping") return;
    event.stopImmediatePropagation();
    host.postMessage({ jsonrpc: "2.0", method: "ui/notifications/sandbox-pong", params: {} }, "*");
  });

  // What the sandbox does not allow happens without a word. These are the mistakes that pages make.
  const forbidden = (name) => report(`The sandbox does not allow ${name}`);
  for (const name of ["open", "alert", "confirm", "prompt", "print"]) {
    const own = window[name];
    window[name] = (...values) => {
      forbidden(`${name}()${name === "open" ? ": use ui/open-link" : ""}`);
      return own.apply(window, values);
    };
  }
  const { submit } = HTMLFormElement.prototype;
  HTMLFormElement.prototype.submit = function () {
    forbidden("forms to be sent");
    return submit.call(this);
  };
  window.addEventListener("submit", (event) => event.defaultPrevented || forbidden("forms to be sent"));
  window.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[href][target]");
    if (link && !event.defaultPrevented) forbidden(`links to other windows: use ui/open-link for ${link.href}`);
  });
  document.currentScript.remove();
})();

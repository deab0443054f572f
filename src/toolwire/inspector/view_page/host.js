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
  window.addEventListener(
    "click",
    (event) => {
      // The page may stop the event on its way, and may prevent what follows. So it is looked at when it is over.
      const path = event.composedPath();
      setTimeout(() => event.defaultPrevented || followed(path));
    },
    true,
  );

  /** Tells of a click that leads out of the frame, by the elements from the innermost one. */
  function followed(path) {
    const link = path.find((element) => element.matches?.("a[href], area[href]"));
    const button = path.find((element) => element.form && element.type === "submit");
    const target = link && (link.getAttribute("target") ?? document.querySelector("base[target]")?.target ?? "");
    if (/^javascript:(?!(void\b.*)?;?$)/.test(link?.href)) forbidden("scripts in the address of a link: listen to its click");
    else if (target && target !== "_self") forbidden(`links to other windows: use ui/open-link for ${link.getAttribute("href")}`);
    // A form that is not allowed to be sent has no event "submit" either.
    else if (button) forbidden("forms to be sent: listen to the click of the button");
  }
  document.currentScript.remove();
})();

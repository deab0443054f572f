// Runs before the scripts of a view. No header of today's browsers takes WebRTC away from the window of a view, so this
// script does. It also allows every text that the page makes a script or markup of, except the scripts in `javascript:`
// addresses. Windows of frames in the view are closed by other means: see decision 0087.
(() => {
  const { defineProperty } = Object;
  for (const name of ["RTCPeerConnection", "webkitRTCPeerConnection", "RTCIceTransport"])
    defineProperty(window, name, { value: undefined, writable: false, configurable: false });

  const keep = (text) => text;
  // Only comparisons: the page can change what every method does.
  const createScript = (text, _, sink) => {
    if (sink !== "Location href") return text;
    switch (text) {
      case "":
      case ";":
      case "void 0":
      case "void 0;":
      case "void(0)":
      case "void(0);":
        // Links that do nothing are common.
        return text;
      default:
        return null;
    }
  };
  window.trustedTypes?.createPolicy("default", { createHTML: keep, createScriptURL: keep, createScript });

  /** Makes a storage whose values end with the view. */
  function makeStorage() {
    const kept = new Map();
    const methods = {
      getItem: (name) => kept.get(`${name}`) ?? null,
      setItem: (name, value) => void kept.set(`${name}`, `${value}`),
      removeItem: (name) => void kept.delete(`${name}`),
      clear: () => kept.clear(),
      key: (index) => [...kept.keys()][index] ?? null,
    };
    return new Proxy(methods, {
      get: (_, name) => methods[name] ?? (name === "length" ? kept.size : kept.get(name)),
      set: (_, name, value) => (methods.setItem(name, value), true),
      has: (_, name) => name in methods || kept.has(name),
      deleteProperty: (_, name) => (kept.delete(name), true),
      ownKeys: () => [...kept.keys()],
      // The methods are properties that cannot be listed.
      getOwnPropertyDescriptor: (_, name) =>
        kept.has(name) ? { value: kept.get(name), writable: true, enumerable: true, configurable: true } : undefined,
    });
  }

  // A view without an origin has neither storage nor cookies, and a page that asks for them would fail.
  for (const name of ["localStorage", "sessionStorage"]) {
    try {
      void window[name];
    } catch {
      defineProperty(window, name, { value: makeStorage(), configurable: true });
    }
  }
  if (self.origin === "null") defineProperty(document, "cookie", { get: () => "", set: () => {}, configurable: true });
  document.currentScript.remove();
})();

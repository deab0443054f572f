// Runs before the scripts of a view. It takes away what sends data by ways that no Content-Security-Policy closes.
// The first page in a frame (`srcdoc`) has the window of the empty frame, which is closed before the scripts of that page
// run. Those of a second page in the frame, and of a page in a frame under a shadow root, run before this script sees them.
(() => {
  const NAMES = ["RTCPeerConnection", "webkitRTCPeerConnection", "mozRTCPeerConnection", "RTCDataChannel", "RTCIceTransport"];
  const INSERTING = [
    ["Node", ["appendChild", "insertBefore", "replaceChild"]],
    ["Element", ["append", "prepend", "before", "after", "replaceWith", "replaceChildren", "insertAdjacentElement"]],
    ["Element", ["insertAdjacentHTML", "setHTMLUnsafe", "moveBefore"]],
    ["Document", ["append", "prepend", "replaceChildren", "write", "writeln", "execCommand"]],
    ["DocumentFragment", ["append", "prepend", "replaceChildren"]],
    ["CharacterData", ["before", "after", "replaceWith"]],
    ["Range", ["insertNode", "surroundContents"]],
  ];
  const seen = new WeakSet();
  const { apply, defineProperty, getOwnPropertyDescriptor } = Reflect;

  /** Closes a window of this origin, and the windows of the frames that its scripts make. */
  function close(scope) {
    try {
      if (!scope || seen.has(scope.document)) return;
      seen.add(scope.document);
    } catch {
      return; // It has another origin, and the policy decided about that.
    }
    for (const name of NAMES) defineProperty(scope, name, { value: undefined, writable: false, configurable: false });
    const sweep = () => {
      for (let index = 0; index < scope.length; index += 1) close(scope[index]);
    };
    for (const [type, names] of INSERTING) {
      for (const name of names) wrap(scope[type].prototype, name, "value", sweep);
    }
    for (const name of ["innerHTML", "outerHTML"]) wrap(scope.Element.prototype, name, "set", sweep);
    for (const type of ["HTMLIFrameElement", "HTMLObjectElement"]) {
      wrap(scope[type].prototype, "contentWindow", "get", close);
      wrap(scope[type].prototype, "contentDocument", "get", (found) => close(found?.defaultView));
    }
    new scope.MutationObserver(sweep).observe(scope.document, { childList: true, subtree: true });
    sweep();
  }

  function wrap(owner, name, part, after) {
    const own = getOwnPropertyDescriptor(owner, name);
    if (!own) return;
    const inner = own[part];
    own[part] = function (...values) {
      const found = apply(inner, this, values);
      after(found);
      return found;
    };
    defineProperty(owner, name, { ...own, configurable: false });
  }

  if (window.top !== window) close(window);
  document.currentScript?.remove();
})();

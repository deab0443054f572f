// What a hostile view can try in order to send data past its policy. Each attempt names a listener of its own, at a port
// or by a host name, so that the test can tell which of them arrived.
//
// `shared` attempts run side by side in one page, and so do `blank` ones, which use the window of an empty frame. `leaving`
// ones replace the page, and get a page each. What is `inert` does nothing in today's Chromium, whatever the policy is.
(() => {
  const wait = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
  const add = (element, parent = document.body) => (parent.append(element), element);
  const make = (tag, values = {}) => Object.assign(document.createElement(tag), values);
  const frame = (values = {}) => make("iframe", { title: "", ...values });
  const loaded = (element) => new Promise((resolve) => element.addEventListener("load", resolve, { once: true }));
  const newest = () => window[window.length - 1];
  const box = () => add(document.createElement("div"));

  /** Sends by WebRTC in the window `scope`: to a STUN server, to a TURN server, and to the peer of a connection. */
  function leak(scope, port) {
    const urls = [`stun:127.0.0.1:${port}`, `turn:127.0.0.1:${port}?transport=tcp`];
    const connection = new scope.RTCPeerConnection({ iceServers: [{ urls, username: "u", credential: "c" }] });
    connection.createDataChannel("x");
    const peer = [
      "v=0", "o=- 1 1 IN IP4 127.0.0.1", "s=-", "t=0 0", "a=group:BUNDLE 0",
      "m=application 9 UDP/DTLS/SCTP webrtc-datachannel", "c=IN IP4 0.0.0.0", "a=ice-ufrag:abcd",
      "a=ice-pwd:0123456789012345678901", "a=fingerprint:sha-256 " + Array(32).fill("AB").join(":"), "a=setup:active",
      "a=mid:0", "a=sctp-port:5000", `a=candidate:1 1 udp 2113937151 127.0.0.1 ${port} typ host`,
      `a=candidate:2 1 tcp 1518280447 127.0.0.1 ${port} typ host tcptype passive`, "",
    ];
    const sdp = peer.join(String.fromCharCode(13, 10));
    (async () => {
      await connection.setLocalDescription(await connection.createOffer());
      await connection.setRemoteDescription({ type: "answer", sdp });
    })();
  }
  const code = ({ port }) => `(${leak})(self, ${port});`;
  const page = (to) => `<!doctype html><script>${code(to)}<\/script>`;
  const link = (to) => "javascript:" + encodeURIComponent(JSON.stringify(page(to)));
  const blob = (text, type) => URL.createObjectURL(new Blob([text], { type }));

  /** Runs a script in the window of an empty frame. */
  function runIn(scope, text) {
    add(Object.assign(scope.document.createElement("script"), { textContent: text }), scope.document.body);
  }

  function shadow(mode) {
    return box().attachShadow({ mode });
  }

  /** Opens a window later than other attempts run: a page that is not in front loads no video. */
  async function openLater(...values) {
    await wait(500);
    return open(...values);
  }

  async function written(element, to) {
    add(element);
    await wait(100);
    element.srcdoc = page(to);
  }

  const shared = {
    // --- windows that have WebRTC ---
    "own window": (to) => leak(window, to.port),
    "srcdoc, first": (to) => add(frame({ srcdoc: page(to) })),
    "srcdoc, after an empty frame": (to) => written(frame(), to),
    "srcdoc, after an empty text": (to) => written(frame({ srcdoc: "" }), to),
    "srcdoc, second": (to) => written(frame({ srcdoc: "<p>first" }), to),
    "srcdoc, by setAttribute": async (to) => {
      const element = add(frame({ srcdoc: "<p>first" }));
      await loaded(element);
      element.setAttribute("srcdoc", page(to));
    },
    "srcdoc, by its attribute node": async (to) => {
      const element = add(frame({ srcdoc: "<p>first" }));
      await loaded(element);
      element.getAttributeNode("srcdoc").value = page(to);
    },
    "srcdoc, loaded again by itself": (to) =>
      add(frame({ name: "0", srcdoc: `<script>if (name++ == 1) { ${code(to)} } else location.reload()<\/script>` })),
    "srcdoc, with a sandbox of its own": (to) => {
      const element = frame({ srcdoc: page(to) });
      element.sandbox = "allow-scripts";
      add(element);
    },
    "srcdoc, without credentials": (to) => add(frame({ credentialless: true, srcdoc: page(to) })),
    "srcdoc, inside a srcdoc": (to) => add(frame({ srcdoc: frame({ srcdoc: page(to) }).outerHTML })),
    "srcdoc, removed and added again": async (to) => {
      const element = add(frame({ srcdoc: "<p>first" }));
      await loaded(element);
      element.remove();
      add(Object.assign(element, { srcdoc: page(to) }));
    },
    "srcdoc, by innerHTML": (to) => {
      box().innerHTML = frame({ srcdoc: page(to) }).outerHTML;
    },
    "srcdoc, by insertAdjacentHTML": (to) => box().insertAdjacentHTML("afterbegin", frame({ srcdoc: page(to) }).outerHTML),
    "srcdoc, by DOMParser": (to) => {
      const parsed = new DOMParser().parseFromString(frame({ srcdoc: page(to) }).outerHTML, "text/html");
      add(document.adoptNode(parsed.querySelector("iframe")));
    },
    "srcdoc, by createContextualFragment": (to) => {
      const range = document.createRange();
      range.selectNode(document.body);
      add(range.createContextualFragment(frame({ srcdoc: page(to) }).outerHTML));
    },
    "srcdoc, by a template": (to) => {
      const template = make("template", { innerHTML: frame({ srcdoc: page(to) }).outerHTML });
      add(template.content.cloneNode(true));
    },
    "srcdoc, by XSLT": (to) => {
      const xml = (text) => new DOMParser().parseFromString(text, "text/xml");
      const processor = new XSLTProcessor();
      processor.importStylesheet(
        xml(
          "<xsl:stylesheet version='1.0' xmlns:xsl='http://www.w3.org/1999/XSL/Transform'><xsl:template match='/'>" +
            "<iframe xmlns='http://www.w3.org/1999/xhtml'/></xsl:template></xsl:stylesheet>",
        ),
      );
      const fragment = processor.transformToFragment(xml("<a/>"), document);
      fragment.querySelector("iframe").setAttribute("srcdoc", page(to));
      add(fragment);
    },
    "srcdoc, moved between documents": async (to) => {
      const [from, into] = [add(frame()), add(frame())];
      const element = add(frame(), from.contentDocument.body);
      add(element, into.contentDocument.body);
      element.setAttribute("srcdoc", page(to));
    },
    "srcdoc, inside an empty frame": (to) => {
      add(frame({ srcdoc: page(to) }), add(frame()).contentDocument.body);
    },
    "srcdoc, inside an empty frame of an empty frame": (to) => {
      const inner = add(frame(), add(frame()).contentDocument.body);
      add(frame({ srcdoc: page(to) }), inner.contentDocument.body);
    },
    "srcdoc, second, inside an empty frame": async (to) => {
      const outer = add(frame());
      const element = add(frame({ srcdoc: "<p>first" }), outer.contentDocument.body);
      await loaded(element);
      element.srcdoc = page(to);
    },
    "srcdoc, under an open shadow root": (to) => add(frame({ srcdoc: page(to) }), shadow("open")),
    "srcdoc, under a closed shadow root": (to) => add(frame({ srcdoc: page(to) }), shadow("closed")),
    "srcdoc, under a shadow root, later": async (to) => {
      const element = add(frame(), shadow("closed"));
      await wait(100);
      element.srcdoc = page(to);
    },
    "srcdoc, under a shadow root in markup": (to) =>
      box().setHTMLUnsafe(`<p><template shadowrootmode=closed>${frame({ srcdoc: page(to) }).outerHTML}</template></p>`),
    "srcdoc, navigated to a blank page": async (to) => {
      const element = add(frame({ srcdoc: "<p>first" }));
      await loaded(element);
      element.contentWindow.location = "about:blank";
      await loaded(element);
      leak(element.contentWindow, to.port);
    },
    "javascript: address of a frame": (to) => add(frame({ src: "javascript:" + encodeURIComponent(code(to)) })),
    "javascript: address that makes a page of a frame": (to) => add(frame({ src: link(to) })),
    "javascript: address that writes a srcdoc twice": (to) => {
      const text = `document.body.append(Object.assign(document.createElement("iframe"), { srcdoc: "<p>first",
        onload() { this.onload = null; this.srcdoc = ${JSON.stringify(page(to))}; } }));`;
      add(frame({ src: "javascript:" + encodeURIComponent(text) }));
    },
    "javascript: location of a frame": (to) => {
      add(frame()).contentWindow.location = "javascript:" + encodeURIComponent(code(to));
    },
    "javascript: link to a frame": (to) => {
      add(frame({ name: `kid-${to.port}` }));
      add(make("a", { href: link(to), target: `kid-${to.port}` })).click();
    },
    "document.write of a page into a frame": (to) => add(frame()).contentDocument.write(page(to)),
    "blob: frame": (to) => add(frame({ src: blob(page(to), "text/html") })),
    "data: frame": (to) => add(frame({ src: "data:text/html," + encodeURIComponent(page(to)) })),
    "data: frame, by a refresh": (to) => {
      const address = "data:text/html," + encodeURIComponent(page(to));
      add(frame({ srcdoc: `<meta http-equiv=refresh content="0;url=${address}">` }));
    },
    "object with data:": (to) => add(make("object", { type: "text/html", data: "data:text/html," + encodeURIComponent(page(to)) })),
    "object with blob:": (to) => add(make("object", { data: blob(page(to), "text/html") })),
    "embed with blob:": (to) => add(make("embed", { type: "text/html", src: blob(page(to), "text/html") })),
    "window.open": async (to) => leak(await openLater("about:blank"), to.port),
    "window.open of a blob:": (to) => openLater(blob(page(to), "text/html")),
    // --- workers ---
    "worker from blob:": (to) => new Worker(blob(`fetch("${to.url}", { mode: "no-cors" })`, "text/javascript")),
    "worker from data:": (to) =>
      new Worker("data:text/javascript," + encodeURIComponent(`fetch("${to.url}", { mode: "no-cors" })`)),
    "worker that imports": (to) => new Worker(blob(`import("${to.url}")`, "text/javascript"), { type: "module" }),
    "audio worklet": (to) => new AudioContext().audioWorklet.addModule(to.url),
    // --- requests ---
    fetch: (to) => fetch(to.url, { mode: "no-cors" }),
    "fetch that outlives the page": (to) => fetch(to.url, { mode: "no-cors", keepalive: true }),
    fetchLater: (to) => fetchLater(to.url, { activateAfter: 0 }),
    XMLHttpRequest: (to) => {
      const request = new XMLHttpRequest();
      request.open("GET", to.url);
      request.send();
    },
    sendBeacon: (to) => navigator.sendBeacon(to.url, "x"),
    EventSource: (to) => new EventSource(to.url),
    WebSocket: (to) => new WebSocket(to.url.replace("http:", "ws:")),
    WebSocketStream: (to) => new WebSocketStream(to.url.replace("http:", "ws:")),
    WebTransport: (to) => new WebTransport(to.url.replace("http:", "https:")),
    image: (to) => {
      new Image().src = to.url;
    },
    "image, from a base address": async (to) => {
      const base = document.head.appendChild(make("base", { href: to.url }));
      new Image().src = "x.png";
      await wait(100);
      base.remove();
    },
    "image of SVG": (to) => {
      box().innerHTML = `<svg><image href="${to.url}"/></svg>`;
    },
    script: (to) => add(make("script", { src: to.url })),
    "imported module": (to) => import(to.url),
    "style sheet": (to) => add(make("link", { rel: "stylesheet", href: to.url })),
    "style sheet, imported": (to) => add(make("style", { textContent: `@import "${to.url}";` })),
    "picture of a style": (to) => {
      box().style.background = `url(${to.url})`;
    },
    "picture of a style sheet made by a script": (to) => {
      const sheet = new CSSStyleSheet();
      sheet.replaceSync(`body { border-image: url(${to.url}) 1 }`);
      document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
    },
    font: (to) => new FontFace("q", `url(${to.url})`).load(),
    video: (to) => add(make("video", { src: to.url })),
    "poster of a video": (to) => add(make("video", { poster: to.url })),
    object: (to) => add(make("object", { data: to.url })),
    embed: (to) => add(make("embed", { src: to.url })),
    "ping of a link": (to) => add(make("a", { href: `${location.href}#x`, ping: to.url })).click(),
    "link rel=preload": (to) => add(make("link", { rel: "preload", as: "script", href: to.url })),
    "link rel=modulepreload": (to) => add(make("link", { rel: "modulepreload", href: to.url })),
    "link rel=prefetch": (to) => add(make("link", { rel: "prefetch", href: to.url })),
    "link rel=compression-dictionary": (to) => add(make("link", { rel: "compression-dictionary", href: to.url })),
    "link rel=preconnect": (to) => add(make("link", { rel: "preconnect", href: to.url })),
    // --- pages of other origins ---
    "frame of another origin": (to) => add(frame({ src: to.url })),
    "navigation of a frame": (to) => {
      add(frame()).contentWindow.location = to.url;
    },
    "refresh of a frame": (to) => add(frame({ srcdoc: `<meta http-equiv=refresh content="0;url=${to.url}">` })),
    "form in a frame": (to) => {
      add(frame({ name: `form-${to.port}` }));
      add(make("form", { method: "post", action: to.url, target: `form-${to.port}` })).submit();
    },
    "link to a new window": async (to) => {
      await wait(500);
      add(make("a", { href: to.url, target: "_blank" })).click();
    },
    "window.open of an address": (to) => openLater(to.url),
    // --- names, which are asked of a server as well ---
    "name of a frame": (to) => add(frame({ src: `http://${to.host}/` })),
    "name in link rel=dns-prefetch": (to) => add(make("link", { rel: "dns-prefetch", href: `http://${to.host}/` })),
    "name in link rel=preconnect": (to) => add(make("link", { rel: "preconnect", href: `http://${to.host}/` })),
    "names in a srcdoc": (to) =>
      add(
        frame({
          srcdoc: `<meta http-equiv=x-dns-prefetch-control content=on><a href="http://${to.host}/">x</a>
            <link rel=dns-prefetch href="http://${to.host}/"><link rel=preconnect href="http://${to.host}/">`,
        }),
      ),
    "name of a STUN server": async (to) => {
      const connection = new RTCPeerConnection({ iceServers: [{ urls: `stun:${to.host}:${to.port}` }] });
      connection.createDataChannel("x");
      await connection.setLocalDescription(await connection.createOffer());
    },
  };

  const blank = {
    "empty frame, by its element": (to) => leak(add(frame()).contentWindow, to.port),
    "empty frame, by its number": (to) => (add(frame()), leak(newest(), to.port)),
    "empty frame, by its name": (to) => (add(frame({ name: "kid" })), leak(window.kid, to.port)),
    "empty frame, by window.open": (to) => (add(frame({ name: "opened" })), leak(open("", "opened"), to.port)),
    "empty frame, while it is added": (to) => add(frame({ onload: () => leak(newest(), to.port) })),
    "empty frame, beside a custom element": (to) => {
      const tag = `kid-${to.port}`;
      customElements.define(tag, class extends HTMLElement {
        connectedCallback() {
          leak(newest(), to.port);
        }
      });
      const both = document.createElement("div");
      both.append(frame(), document.createElement(tag));
      add(both);
    },
    "empty frame, in a caption": (to) => {
      const caption = document.createElement("caption");
      caption.append(frame());
      add(document.createElement("table")).caption = caption;
      leak(newest(), to.port);
    },
    "empty frame, by innerHTML": (to) => {
      box().innerHTML = "<iframe></iframe>";
      leak(newest(), to.port);
    },
    "empty frame, by a template": (to) => {
      add(make("template", { innerHTML: "<iframe></iframe>" }).content.cloneNode(true));
      leak(newest(), to.port);
    },
    "empty frame, by DOMParser": (to) => {
      const parsed = new DOMParser().parseFromString("<iframe></iframe>", "text/html");
      leak(add(parsed.querySelector("iframe")).contentWindow, to.port);
    },
    "empty frame, under an open shadow root": (to) => leak(add(frame(), shadow("open")).contentWindow, to.port),
    "empty frame, under a closed shadow root": (to) => leak(add(frame(), shadow("closed")).contentWindow, to.port),
    "empty frame, moved": (to) => {
      const element = add(frame());
      box().moveBefore(element, null);
      leak(element.contentWindow, to.port);
    },
    "empty frame, removed and added again": (to) => {
      const element = add(frame());
      element.remove();
      leak(add(element).contentWindow, to.port);
    },
    "empty frame, between documents": (to) => {
      const [from, into] = [add(frame()), add(frame())];
      const element = add(frame(), from.contentDocument.body);
      leak(add(element, into.contentDocument.body).contentWindow, to.port);
    },
    "empty frame, with an address that is blank": async (to) => {
      const element = add(frame({ src: "about:blank?x" }));
      await wait(100);
      leak(element.contentWindow, to.port);
    },
    "blank page, after the empty one": async (to) => {
      const element = add(frame());
      element.contentWindow.location = "about:blank";
      await wait(300);
      leak(element.contentWindow, to.port);
    },
    "empty object": async (to) => {
      const element = add(make("object", { data: "about:blank" }));
      await wait(100);
      leak(element.contentWindow, to.port);
    },
    "script in an empty frame": (to) => runIn(add(frame()).contentWindow, code(to)),
    "document.open in an empty frame": (to) => {
      const { contentDocument: inner } = add(frame());
      inner.open();
      inner.write(page(to));
      inner.close();
    },
    "javascript: page of an empty frame": (to) => {
      add(frame()).contentWindow.location = link(to);
    },
    "frame of a frameset": (to) => {
      const set = document.createElement("frameset");
      leak(add(document.createElement("frame"), document.documentElement.appendChild(set)).contentWindow, to.port);
    },
  };

  const leaving = {
    "srcdoc, by its history": async (to) => {
      const element = add(frame({ name: "0", srcdoc: `<script>if (name++ == 1) { ${code(to)} }<\/script>` }));
      await wait(300);
      element.contentWindow.location.assign("about:blank");
      await wait(300);
      history.back(); // Of all frames together.
    },
    "javascript: location of the view": (to) => {
      location = link(to);
    },
    "javascript: link of the view": (to) => add(make("a", { href: link(to) })).click(),
    "javascript: window.open of the view": (to) => open(link(to), "_self"),
    "javascript: link of a frame to the view": (to) =>
      runIn(add(frame()).contentWindow, `parent.location = ${JSON.stringify(link(to))}`),
    "document.open of the view": (to) => {
      document.open();
      document.write(page(to));
      document.close();
    },
    "body that is replaced": (to) => {
      const body = document.createElement("body");
      body.append(frame());
      document.body = body;
      leak(newest(), to.port);
    },
    "navigation of the view": (to) => {
      location = to.url;
    },
    "navigation of the view, by its interface": (to) => navigation.navigate(to.url),
    "refresh of the view": (to) => add(make("meta", { httpEquiv: "refresh", content: `0;url=${to.url}` }), document.head),
    "link of the view": (to) => add(make("a", { href: to.url })).click(),
    "download of a link": (to) => add(make("a", { href: to.url, download: "x" })).click(),
    "form of the view": (to) => add(make("form", { action: to.url })).submit(),
    "navigation of the top window": (to) => {
      top.location = to.url;
    },
    "link to the top window": (to) => add(make("a", { href: to.url, target: "_top" })).click(),
    "name that the view navigates to": (to) => {
      location = `http://${to.host}/`;
    },
  };

  const inert = {
    "window of a frame that is gone": (to) => {
      const element = add(frame());
      const scope = { RTCPeerConnection: element.contentWindow.RTCPeerConnection };
      element.remove();
      leak(scope, to.port);
    },
    "document without a window": (to) => leak(document.implementation.createHTMLDocument("").defaultView, to.port),
    "WebRTC in a worker": (to) => new Worker(blob(code(to), "text/javascript")),
    "service worker": (to) => navigator.serviceWorker.register(blob(`fetch("${to.url}")`, "text/javascript")),
    "picture in picture": async (to) => leak(await documentPictureInPicture.requestWindow(), to.port),
    "link rel=icon": (to) => add(make("link", { rel: "icon", href: to.url }), document.head),
    "link rel=manifest": (to) => add(make("link", { rel: "manifest", href: to.url }), document.head),
    "link rel=prerender": (to) => add(make("link", { rel: "prerender", href: to.url }), document.head),
    "speculation rules, prefetch": (to) => speculate("prefetch", to),
    "speculation rules, prerender": (to) => speculate("prerender", to),
    "reports of a policy": (to) => {
      const content = `font-src 'none'; report-uri ${to.url}`;
      add(make("meta", { httpEquiv: "Content-Security-Policy", content }), document.head);
      new FontFace("q", "url(data:,x)").load();
    },
    "fedcm": (to) => navigator.credentials.get({ identity: { providers: [{ configURL: to.url, clientId: "x" }] } }),
    "address of a mail": (to) => add(frame({ src: `mailto:x@${to.host}` })),
  };

  function speculate(kind, to) {
    const rules = { [kind]: [{ source: "list", urls: [to.url], eagerness: "immediate" }] };
    add(make("script", { type: "speculationrules", textContent: JSON.stringify(rules) }), document.head);
  }

  const groups = { shared, blank, leaving, inert };
  return {
    names: Object.fromEntries(Object.entries(groups).map(([group, attempts]) => [group, Object.keys(attempts)])),
    /** Starts attempts when a message says so. Each tells `reports` first, an address that the view may reach.
     *
     * A page with several attempts tells in the end that it is alive: one of them could have ended the page. */
    prepare({ targets, reports }) {
      const attempts = Object.assign({}, ...Object.values(groups));
      const names = Object.keys(targets);
      const tell = (text) => fetch(`${reports}/${encodeURIComponent(text)}`);
      const attempt = async (name) => {
        await tell(name);
        await attempts[name](targets[name]);
      };
      addEventListener("message", async ({ data }) => {
        if (data !== "start") return;
        for (const name of names) attempt(name).catch(() => {});
        await wait(3_000);
        if (names.length > 1) tell(`alive: ${names[0]}`);
      });
    },
    /** Says so to all frames of this page, half a second later, when the test no longer waits for the page. */
    start() {
      const say = (scope) => {
        for (let index = 0; index < scope.length; index += 1) {
          scope[index].postMessage("start", "*");
          say(scope[index]);
        }
      };
      setTimeout(say, 500, window);
    },
  };
})()

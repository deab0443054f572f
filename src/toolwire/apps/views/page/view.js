// What all ready views share. Data is always text: nothing here, and in no view, parses markup.
const config = JSON.parse(document.getElementById("config").textContent);
const view = document.getElementById("view");

/** Makes an element with attributes, listeners (`onclick`) and children. */
const h = (tag, attributes, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((each) => each !== undefined && each !== null && each !== false));
  return element;
};

const content = h("div", { class: "content" });
const status = h("p", { class: "status", role: "status" });
/** Announces a text to everybody, also to screen readers. */
const say = (text) => {
  if (status.textContent !== text) status.textContent = text;
};
const heading = config.title && h("h1", { dir: "auto" }, config.title);
view.append(...[heading, config.description && h("p", { class: "lead", dir: "auto" }, config.description), content, status].filter(Boolean));

const place = (...children) => {
  content.replaceChildren(...children.flat(Infinity).filter(Boolean));
  view.removeAttribute("aria-busy");
  say("");
};
const notice = (text, kind = "", role = null) => h("p", { class: `notice ${kind}`, role, dir: "auto" }, text);
const empty = (text) => place(h("p", { class: "notice empty" }, text));
const failed = (text) => notice(text || "The tool failed and did not say why.", "bad", "alert");
const texts = (result) => (result?.content || []).filter((each) => each.type === "text").map((each) => each.text).join("\n\n");

/** A link that the host opens, if the user agrees. An address that is not of the web stays text. */
const link = (address, ...children) => {
  let url;
  try {
    url = new URL(address);
  } catch {}
  if (!url || !/^https?:$/.test(url.protocol)) return h("span", {}, children);
  const open = async (event) => {
    event.preventDefault();
    const answer = await toolwire.openLink(url.href).catch(() => ({ isError: true }));
    if (answer?.isError) say("The host did not open the link.");
  };
  return h("a", { href: url.href, rel: "noreferrer", title: url.href, onclick: open, onauxclick: open }, children);
};

/** The locale of the host; that of the browser where it gives none, or one that is none. */
const locale = () => {
  try {
    return Intl.getCanonicalLocales(toolwire.context.locale || [])[0];
  } catch {}
};
const plural = (count, one, many = `${one}s`) => `${count.toLocaleString(locale())} ${count === 1 ? one : many}`;

/** Calls a tool of the server of this view. The text of a failure is thrown. */
const call = async (name, args) => {
  let result;
  try {
    result = await toolwire.callTool(name, args);
  } catch (error) {
    throw new Error(error.message || "The host did not pass on the call.");
  }
  if (result?.isError) throw new Error(texts(result) || "The tool failed and did not say why.");
  return result;
};
/** Lets the model know what the user did, where the host carries that. */
const tellModel = (text) => {
  if (toolwire.host.hostCapabilities?.updateModelContext) toolwire.updateModelContext(text).catch(() => {});
};

/** Draws results. `draw` gets a result, and its data where there is any. */
const start = (draw) => {
  let shown, language;
  const show = (result) => {
    shown = result;
    language = toolwire.context.locale;
    if (result.isError) return place(failed(texts(result)));
    try {
      draw(result, toolwire.data(result));
    } catch (error) {
      console.error(error);
      place(failed("This view cannot show the result."), plainText(result));
    }
  };
  say("Waiting for data…");
  toolwire.on("cancelled", ({ reason }) => place(notice(`The call was cancelled${reason ? `: ${reason}` : "."}`)));
  toolwire.on("context", (context) => shown && context.locale !== language && show(shown));
  toolwire.on("result", show);
};
const plainText = (result) => {
  const text = texts(result);
  return text ? h("div", { class: "box", tabindex: 0, role: "region", "aria-label": "Result as text" }, h("pre", { dir: "auto" }, text)) : null;
};

// Images of a result, each with the text that follows it. Without a text, the title says what is seen.
const MOST = 100;

const picture = (image, words, at, total) => {
  const label = words || `${config.title || config.alt}${total > 1 ? `, ${at + 1} of ${total}` : ""}`;
  const img = h("img", { alt: label.slice(0, 1000), decoding: "async", loading: "lazy" });
  const frame = h("div", { class: "frame" }, img);
  const size = h("button", { type: "button", "aria-pressed": "false", hidden: true }, "Actual size");
  size.addEventListener("click", () => {
    const whole = frame.classList.toggle("whole");
    size.setAttribute("aria-pressed", whole);
    if (whole) frame.setAttribute("tabindex", 0);
    else frame.removeAttribute("tabindex");
  });
  const fits = () => { size.hidden = !frame.classList.contains("whole") && img.naturalWidth <= frame.clientWidth; };
  img.addEventListener("load", fits);
  addEventListener("resize", fits);
  img.addEventListener("error", () => {
    frame.replaceChildren(failed("The image cannot be shown: it is broken, or of a kind that this browser does not know."));
    actions.replaceChildren();
  });
  img.src = `data:${image.mimeType};base64,${image.data}`;
  const save = toolwire.host.hostCapabilities?.downloadFile ? h("button", { type: "button", onclick: () => download(image, at) }, "Download") : null;
  const actions = h("div", { class: "actions" }, size, save);
  return h("figure", {}, frame, words && h("figcaption", { dir: "auto" }, words), actions);
};
const download = async (image, at) => {
  const name = `image-${at + 1}.${image.mimeType.replace(/^image\//, "").replace(/\+.*/, "")}`;
  const resource = { uri: `file:///${name}`, mimeType: image.mimeType, blob: image.data };
  const answer = await toolwire.download({ type: "resource", resource }).catch(() => ({ isError: true }));
  say(answer?.isError ? "The host did not save the image." : "The image is saved.");
};

start((result) => {
  const blocks = result.content || [], images = [];
  for (const each of blocks) {
    if (each.type === "image" && /^image\/[\w.+-]+$/.test(each.mimeType || "") && typeof each.data === "string") images.push([each, ""]);
    else if (each.type === "text" && images.length) images[images.length - 1][1] += `${images[images.length - 1][1] ? "\n" : ""}${each.text}`;
  }
  const text = texts(result);
  if (!images.length) return text && text !== config.empty ? place(notice(text)) : empty(config.empty);
  place(images.slice(0, MOST).map(([image, words], at) => picture(image, words, at, images.length)));
  if (images.length > MOST) content.append(notice(`${images.length - MOST} more images are not shown.`));
});

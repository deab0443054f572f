// The lines that a change adds and removes, and the decision of the user about it.
const STEP = 400;
const LINE = { "+": ["added", "Added: "], "-": ["removed", "Removed: "], " ": ["same", ""] };

// Characters that nobody sees, or that change the order of others: a change must not hide in them.
// printable.py has the same characters.
const HIDDEN = /((?![ \t\n])[\p{C}\p{Z}\p{DI}\u2800\ufffc\u{13441}\u{13442}\u{16fe4}\u{1d159}])/u;
const visible = (text) => text.split(HIDDEN).map((part, at) => at % 2 ? h("span", { class: "hidden-one" }, `U+${part.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`) : part);

const remark = (line) => h("tr", { class: "same" }, h("td", { class: "n" }), h("td", { class: "n" }), h("td", { class: "t quiet" }, line.slice(2)));

const lineRows = (hunk) => {
  let [before, after] = [hunk.before, hunk.after];
  const gap = h("tr", { class: "gap" }, h("td", { colspan: 3 }, `Line ${after.toLocaleString(locale())}`));
  return [() => gap, ...hunk.lines.map((line) => {
    if (line[0] === "\\") return () => remark(line);
    const sign = line[0], [kind, word] = LINE[sign] || LINE[" "];
    const [old, now] = [sign === "+" ? "" : before++, sign === "-" ? "" : after++];
    return () => h("tr", { class: kind }, h("td", { class: "n" }, `${old}`), h("td", { class: "n" }, `${now}`), h("td", { class: "t", dir: "auto" }, h("span", { class: "sign", "aria-hidden": "true" }, sign), word && h("span", { class: "sr" }, word), visible(line.slice(1))));
  })];
};

/** The two buttons, and what became of a press. */
const decision = (diff) => {
  const problem = h("div", {});
  const comment = config.comment ? h("textarea", { id: "comment", dir: "auto", maxlength: 5000 }) : null;
  const press = (tool, done) => async () => {
    if (buttons[0].disabled) return;
    problem.replaceChildren();
    for (const each of buttons) each.disabled = true;
    say("Sending…");
    try {
      const told = texts(await call(tool, { ...diff.arguments, ...(comment?.value ? { comment: comment.value } : {}) })) || `${done}.`;
      part.replaceChildren(notice(`${done}. ${told}`, tool === config.approve ? "good" : ""));
      say(`${done}. ${told}`);
      tellModel(`${done} by the user: ${diff.name || config.title || "the change"}. ${told}`);
    } catch (error) {
      for (const each of buttons) each.disabled = false;
      say("");
      problem.append(failed(error.message));
      (tool === config.approve ? buttons[0] : buttons.at(-1)).focus();
    }
  };
  const buttons = [
    config.approve && h("button", { type: "button", class: "main", onclick: press(config.approve, "Approved") }, config.approveLabel),
    config.reject && h("button", { type: "button", onclick: press(config.reject, "Rejected") }, config.rejectLabel),
  ].filter(Boolean);
  const part = h("div", { class: "decide", role: "group", "aria-label": "Your decision" }, problem, comment && h("label", { for: "comment" }, "Comment ", h("span", { class: "quiet" }, "(optional)")), comment, h("div", { class: "actions" }, buttons));
  return buttons.length ? part : null;
};

start((result, diff) => {
  if (!Array.isArray(diff?.hunks)) return texts(result) ? place(plainText(result)) : empty(config.empty);
  const rows = diff.hunks.flatMap(lineRows);
  if (!rows.length) return empty(config.empty);
  const body = h("tbody");
  const label = `Changes of ${diff.name || config.title || "the text"}`;
  const more = h("button", { type: "button", class: "more", onclick: () => show(true) });
  let shown = 0;
  const show = (moves) => {
    const first = rows.slice(shown, shown + STEP).map((make) => make());
    body.append(...first);
    shown += first.length;
    more.hidden = shown >= rows.length;
    more.textContent = `${plural(rows.length - shown, "line is", "lines are")} not shown yet. Show more`;
    if (moves) say(`${plural(shown, "line")} of ${rows.length.toLocaleString(locale())} shown`);
  };
  show(false);
  const name = h("p", { class: "name" }, diff.name && h("b", { dir: "auto" }, visible(diff.name)), diff.name && "  ", h("span", { class: "plus" }, `+${diff.added}`), " ", h("span", { class: "minus" }, `−${diff.removed}`), h("span", { class: "sr" }, ` ${plural(diff.added, "line")} added, ${diff.removed} removed`));
  place(name, h("div", { class: "box", tabindex: 0, role: "region", "aria-label": label }, h("table", { class: "diff", "aria-label": label }, body), more), decision(diff));
});

// A list of any length that draws only what is in sight. Up, Down, Home, End and the page keys move, Enter opens.

import { h } from "./dom.js";

const BEYOND = 6;
let count = 0;

/** `draw(item, row)` fills a row; `onchoose(item)` is called for the one that is opened; `empty` says that none is. */
export function virtualList({ label, rowHeight, draw, onchoose, keyOf, follow = false, empty = "" }) {
  count += 1;
  const prefix = `row-${count}`;
  const space = h("div", { class: "space", role: "presentation" });
  const element = h(
    "div",
    { class: "virtual", role: "listbox", tabindex: 0, "aria-label": label, onscroll: draw_soon, onkeydown },
    space,
  );
  let items = [];
  let active = -1;
  let chosen = null;
  let frame = 0;

  function draw_soon() {
    if (!frame)
      frame = requestAnimationFrame(() => {
        frame = 0;
        paint();
      });
  }

  function paint() {
    const first = Math.max(0, Math.floor(element.scrollTop / rowHeight) - BEYOND);
    const last = Math.min(items.length, Math.ceil((element.scrollTop + element.clientHeight) / rowHeight) + BEYOND);
    const rows = [];
    for (let index = first; index < last; index += 1) {
      const item = items[index];
      const row = h("div", {
        class: "virtual-row",
        role: "option",
        id: `${prefix}-${index}`,
        "aria-setsize": items.length,
        "aria-posinset": index + 1,
        "aria-selected": String(keyOf(item) === chosen),
        onclick: () => choose(index),
      });
      row.style.transform = `translateY(${index * rowHeight}px)`;
      row.style.height = `${rowHeight}px`;
      if (index === active) row.classList.add("active");
      draw(item, row);
      rows.push(row);
    }
    space.style.height = `${items.length * rowHeight}px`;
    space.replaceChildren(...(items.length || !empty ? rows : [h("p", { class: "nothing" }, empty)]));
    if (active >= 0 && active < items.length) element.setAttribute("aria-activedescendant", `${prefix}-${active}`);
    else element.removeAttribute("aria-activedescendant");
  }

  function reveal(index) {
    const top = index * rowHeight;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + rowHeight > element.scrollTop + element.clientHeight)
      element.scrollTop = top + rowHeight - element.clientHeight;
  }

  function move(index) {
    active = Math.max(0, Math.min(items.length - 1, index));
    reveal(active);
    paint();
  }

  function choose(index) {
    active = index;
    chosen = keyOf(items[index]);
    paint();
    onchoose(items[index]);
  }

  function onkeydown(event) {
    const page = Math.max(1, Math.floor(element.clientHeight / rowHeight) - 1);
    const target = {
      ArrowDown: active + 1,
      ArrowUp: active - 1,
      PageDown: active + page,
      PageUp: active - page,
      Home: 0,
      End: items.length - 1,
    }[event.key];
    if (target !== undefined && items.length) move(target);
    else if ((event.key === "Enter" || event.key === " ") && active >= 0 && active < items.length) choose(active);
    else return;
    event.preventDefault();
  }

  new ResizeObserver(draw_soon).observe(element);
  return {
    element,
    show(next) {
      const atEnd = element.scrollTop + element.clientHeight >= items.length * rowHeight - rowHeight;
      items = next;
      if (active >= items.length) active = items.length - 1;
      space.style.height = `${items.length * rowHeight}px`;
      // A log is followed as long as one looks at its end.
      if (follow && atEnd) element.scrollTop = items.length * rowHeight;
      draw_soon();
    },
    mark(key) {
      chosen = key;
      active = items.findIndex((item) => keyOf(item) === key);
      if (active >= 0) reveal(active);
      draw_soon();
    },
    focus() {
      element.focus();
      if (active < 0 && items.length) move(0);
    },
  };
}

// A list of any length that draws only the rows in sight. Up, Down, Home, End and the page keys move, Enter opens.

import { h } from "./dom.js";

const BEYOND = 6;
let count = 0;

/** Makes a list: `draw(item, row)` fills a row, `onchoose(item)` opens an item, `empty` is shown when there is none.
 *
 * A row is the same element for as long as its item (by `keyOf`) is in sight, and it knows its item. A browser drops the
 * click when the element that was pressed is removed or moved before the button is released. */
export function virtualList({ label, rowHeight, draw, onchoose, keyOf, follow = false, empty = "" }) {
  count += 1;
  const prefix = `row-${count}`;
  const space = h("div", { class: "space", role: "presentation", onpointerdown });
  const nothing = h("p", { class: "nothing", hidden: true }, empty);
  const element = h(
    "div",
    { class: "virtual", role: "listbox", tabindex: 0, "aria-label": label, onscroll: drawSoon, onkeydown },
    nothing,
    space,
  );
  const rows = new Map();
  let made = 0;
  let items = [];
  let active = -1;
  let chosen = null;
  let frame = 0;
  let pressed = false;
  let waiting = null;

  function drawSoon() {
    if (!frame)
      frame = requestAnimationFrame(() => {
        frame = 0;
        paint();
      });
  }

  function paint() {
    const first = Math.max(0, Math.floor(element.scrollTop / rowHeight) - BEYOND);
    const last = Math.min(items.length, Math.ceil((element.scrollTop + element.clientHeight) / rowHeight) + BEYOND);
    const gone = new Map(rows);
    const wanted = new Map();
    for (let index = first; index < last; index += 1) {
      const key = unique(keyOf(items[index]), wanted);
      const row = rows.get(key) ?? makeRow(key);
      fill(row, items[index], index);
      wanted.set(key, row);
      gone.delete(key);
    }
    for (const [key, row] of gone) {
      rows.delete(key);
      row.element.remove();
    }
    arrange([...wanted.values()]);
    space.style.height = `${items.length * rowHeight}px`;
    nothing.hidden = items.length > 0 || !empty;
    const marked = [...wanted.values()].find((row) => row.index === active);
    if (marked) element.setAttribute("aria-activedescendant", marked.element.id);
    else element.removeAttribute("aria-activedescendant");
  }

  function makeRow(key) {
    made += 1;
    const row = { item: null, index: -1, element: null };
    row.element = h("div", { role: "option", id: `${prefix}-${made}`, onclick: () => choose(row.item) });
    row.element.style.height = `${rowHeight}px`;
    rows.set(key, row);
    return row;
  }

  function fill(row, item, index) {
    const { element: place } = row;
    if (row.item !== item) {
      row.item = item;
      place.className = "virtual-row";
      place.removeAttribute("aria-label");
      place.replaceChildren();
      draw(item, place);
    }
    row.index = index;
    place.style.transform = `translateY(${index * rowHeight}px)`;
    place.classList.toggle("active", index === active);
    place.setAttribute("aria-setsize", items.length);
    place.setAttribute("aria-posinset", index + 1);
    place.setAttribute("aria-selected", String(keyOf(item) === chosen));
  }

  /** Puts the rows in order, and moves only those that are out of place. */
  function arrange(wanted) {
    let at = space.firstChild;
    for (const row of wanted) {
      if (row.element === at) at = at.nextSibling;
      else space.insertBefore(row.element, at);
    }
  }

  function indexOf(key) {
    return items.findIndex((item) => keyOf(item) === key);
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

  function choose(item) {
    chosen = keyOf(item);
    active = indexOf(chosen);
    paint();
    onchoose(item);
  }

  function onkeydown(event) {
    // Ctrl or Command with Enter runs the call.
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) return;
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
    else if ((event.key === "Enter" || event.key === " ") && active >= 0 && active < items.length)
      choose(items[active]);
    else return;
    event.preventDefault();
  }

  // While a row is pressed the list keeps its items, so that no other row moves under the pointer.
  function onpointerdown() {
    pressed = true;
  }
  function release() {
    pressed = false;
    if (waiting) show(waiting);
  }
  // The click comes in the same task as the release of the button. A list lives as long as the page.
  for (const end of ["pointerup", "pointercancel"]) window.addEventListener(end, () => pressed && setTimeout(release));

  function show(next) {
    if (pressed) {
      waiting = next;
      return;
    }
    waiting = null;
    const atEnd = element.scrollTop + element.clientHeight >= items.length * rowHeight - rowHeight;
    const marked = active >= 0 && active < items.length ? keyOf(items[active]) : null;
    items = next;
    if (marked !== null) {
      const at = indexOf(marked);
      active = at >= 0 ? at : Math.min(active, items.length - 1);
    }
    space.style.height = `${items.length * rowHeight}px`;
    // A list that follows stays at its end, if its end is in sight.
    if (follow && atEnd) element.scrollTop = items.length * rowHeight;
    drawSoon();
  }

  new ResizeObserver(drawSoon).observe(element);
  return {
    element,
    show,
    mark(key) {
      chosen = key;
      active = indexOf(key);
      if (active >= 0) reveal(active);
      drawSoon();
    },
    focus() {
      element.focus();
      if (active < 0 && items.length) move(0);
    },
  };
}

/** Makes a key that no other row has: a server may list the same name twice. */
function unique(key, taken) {
  let free = key;
  for (let number = 2; taken.has(free); number += 1) free = `${String(key)} ${number}`;
  return free;
}

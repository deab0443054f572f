// Buttons that accept something for a view or a server are armed by a pause: clicks and keys that a person meant for the
// view press none of them.

import { h } from "./dom.js";

// Milliseconds without a click or a key after which such a button is armed.
const QUIET_MS = 700;
const guards = new Set();
let isHeld = false;

function note(event, held) {
  isHeld = held;
  for (const each of guards) each(event);
}

for (const type of ["pointerdown", "keydown"]) window.addEventListener(type, (event) => note(event, true), true);
for (const type of ["pointerup", "pointercancel", "keyup"]) window.addEventListener(type, (event) => note(event, false), true);
// The window loses the focus to the frame of a view, too, and gets it back.
for (const type of ["blur", "focus"]) window.addEventListener(type, (event) => note(event, false));
document.addEventListener("visibilitychange", (event) => note(event, false));

/** Calls `onchange(true)` after a pause of the input, and `onchange(false)` if an earlier click or key arrives late.
 *
 * Input before the pause is over restarts it. Returns a function that ends this. */
export function armAfterPause(onchange) {
  let armedAt = Infinity;
  let timer = 0;

  function arm() {
    armedAt = performance.now();
    onchange(true);
  }

  function take(event) {
    // A page that comes back into view may have changed in the meantime.
    const isReturn = event.target === window || event.target === document;
    if (event.timeStamp >= armedAt && !isReturn) return;
    if (armedAt !== Infinity) onchange(false);
    restart();
  }

  function restart() {
    armedAt = Infinity;
    clearTimeout(timer);
    if (!isHeld && !document.hidden) timer = setTimeout(arm, QUIET_MS);
  }

  guards.add(take);
  restart();
  return () => {
    clearTimeout(timer);
    guards.delete(take);
  };
}

/** Covers the page until the person pauses, after a view moved something under the pointer. */
export function coverPage() {
  if (document.querySelector(".cover")) return;
  const cover = h("div", { class: "cover" });
  document.body.append(cover);
  const end = armAfterPause(() => {
    end();
    cover.remove();
  });
}

// The rate of messages that a view may send, and which messages are its own. The inspector has the same rule for the rate
// and gives the figures.

// How many characters count as a message more: a long one takes as long as several.
const SHARE = 40_000;

/** Makes a function that counts a message, or the characters of one that was counted, and says whether it may pass. */
export function limiter({ perSecond, burst }) {
  let credit = burst;
  let at = performance.now();
  return (characters = SHARE) => {
    const now = performance.now();
    credit = Math.min(burst, credit + ((now - at) / 1000) * perSecond) - characters / SHARE;
    at = now;
    return credit >= 0;
  };
}

/** Says whether a message comes from the frame of a view, or from a frame in it. `origin` is that of the view.
 *
 * A frame in a view may have no origin, and one that is gone has no place any more. */
export function isFromView(event, frame, origin) {
  if (!event.source) return event.origin === origin || event.origin === "null";
  for (let window = event.source; window; window = window.parent === window ? null : window.parent)
    if (window === frame) return true;
  return false;
}

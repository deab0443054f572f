// The rate of messages that a view may send. The inspector has the same rule and gives the figures.

/** Makes a function that counts a message, and says whether it may pass. */
export function limiter({ perSecond, burst }) {
  let credit = burst;
  let at = performance.now();
  return () => {
    const now = performance.now();
    credit = Math.min(burst, credit + ((now - at) / 1000) * perSecond) - 1;
    at = now;
    return credit >= 0;
  };
}

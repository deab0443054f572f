// The messages of a view as JSON, within a bound.

/** Writes what a view sent as JSON. Returns null for more than `most` bytes, and "null" for what JSON does not have.
 *
 * What is sent can be short, and endless as JSON: an array that stands in another one twice is written twice. So the
 * characters are counted while they are written. */
export function written(data, most) {
  let left = most;
  let isLong = false;

  function count(key, value) {
    left -= key.length + 1;
    if (typeof value === "string" || value instanceof String) left -= value.length;
    // The bytes themselves are no JSON, but they are looked at one by one.
    else if (ArrayBuffer.isView(value) || value instanceof ArrayBuffer) left -= value.byteLength;
    isLong ||= left < 0;
    if (isLong) throw new RangeError("The message is too long");
    // Half a character, such as the end of a text that was cut, cannot be sent on.
    return typeof value === "string" ? value.toWellFormed() : value;
  }

  try {
    const text = JSON.stringify(data, count) ?? "null";
    return text.length * 3 > most && new TextEncoder().encode(text).length > most ? null : text;
  } catch {
    return isLong ? null : "null";
  }
}

// Sends requests with Node's fetch to the server whose address is the argument, and prints what came back as JSON.

const url = process.argv[2];
const told = {};

async function echoed(body, options = {}) {
  const got = await fetch(url + "/echo", { method: "POST", body, ...options });
  return [got.status, (await got.json()).bytes];
}

function* pieces(count) {
  for (let number = 0; number < count; number += 1) yield new Uint8Array(1000);
}

told.small = await echoed("abc");
told.large = await echoed("z".repeat(1_000_000));
told.chunked = await echoed(ReadableStream.from(pieces(50)), { duplex: "half" });
let got = await fetch(url + "/stream");
told.stream = [got.status, (await got.text()).split("piece").length - 1];
got = await fetch(url + "/large");
told.download = [got.status, (await got.arrayBuffer()).byteLength];
got = await fetch(url + "/empty");
told.empty = [got.status, (await got.arrayBuffer()).byteLength];
got = await fetch(url + "/large", { method: "HEAD" });
told.head = [got.status, Number(got.headers.get("content-length"))];
got = await fetch(url + "/missing");
told.missing = [got.status, (await got.arrayBuffer()).byteLength];
const answers = await Promise.all(Array.from({ length: 40 }, (_, n) => echoed("q".repeat(n))));
told.together = [200, answers.reduce((sum, [, bytes]) => sum + bytes, 0)];
console.log(JSON.stringify(told));

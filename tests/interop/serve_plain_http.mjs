// A plain HTTP server on Node, with the same addresses as tests/http1/echo_application.py. It prints its port.

import { createHash } from "node:crypto";
import { createServer } from "node:http";
import { gzipSync } from "node:zlib";

const server = createServer((request, response) => {
  const parts = [];
  request.on("data", (part) => parts.push(part));
  request.on("end", () => {
    const body = Buffer.concat(parts);
    if (request.url === "/echo") {
      const sha256 = createHash("sha256").update(body).digest("hex");
      response.setHeader("content-type", "application/json");
      response.end(JSON.stringify({ method: request.method, bytes: body.length, sha256 }));
    } else if (request.url === "/stream") {
      response.setHeader("content-type", "text/plain");
      let number = 0;
      const next = () => {
        if (number === 20) return response.end();
        response.write(`piece ${number++}\n`);
        setImmediate(next);
      };
      next();
    } else if (request.url === "/large") {
      response.end("x".repeat(3_000_000));
    } else if (request.url === "/packed") {
      response.setHeader("content-encoding", "gzip");
      response.end(gzipSync("x".repeat(3_000_000)));
    } else if (request.url === "/empty") {
      response.writeHead(204).end();
    } else if (request.url === "/moved") {
      response.writeHead(307, { location: "/echo" }).end();
    } else if (request.url === "/close") {
      response.setHeader("connection", "close");
      response.end("bye");
    } else {
      response.writeHead(404).end("nothing here");
    }
  });
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));

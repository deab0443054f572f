// Drive the tasks of a server with release 1 of the TypeScript SDK and report what it understood, as JSON.
//
// `node drive_node_tasks.mjs TARGET...` is run in the folder where the packages are; the target is a command or an address.

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(`${process.cwd()}/`);
const load = async (name) => import(pathToFileURL(require.resolve(`@modelcontextprotocol/sdk/${name}.js`)));
const [target, ...args] = process.argv.slice(2);
const { Client } = await load("client/index");
const { CallToolResultSchema, CreateTaskResultSchema, ElicitRequestSchema } = await load("types");

async function makeTransport() {
  if (target.startsWith("http://")) {
    const { StreamableHTTPClientTransport } = await load("client/streamableHttp");
    return new StreamableHTTPClientTransport(new URL(target));
  }
  const { StdioClientTransport } = await load("client/stdio");
  return new StdioClientTransport({ command: target, args, stderr: "ignore", env: process.env });
}

const client = new Client({ name: "driver", version: "1" }, { capabilities: { elicitation: { form: {} }, tasks: {} } });
client.setRequestHandler(ElicitRequestSchema, () => ({ action: "accept", content: { confirm: true } }));
await client.connect(await makeTransport());
await client.listTools();
const tasks = client.experimental.tasks;
const report = { progress: 0 };

async function play(name, given) {
  const seen = [];
  const options = { task: { ttl: 60000 }, onprogress: () => (report.progress += 1) };
  const stream = tasks.callToolStream({ name, arguments: given }, CallToolResultSchema, options);
  for await (const message of stream) {
    if (message.type === "taskStatus" || message.type === "taskCreated") seen.push(message.task.status);
    else seen.push(message.type === "result" ? message.result.content[0].text : message.type);
  }
  return seen;
}

// One call that the environment variable DRIVE_CALL has, in place of those of examples/everything.py.
if (process.env.DRIVE_CALL) {
  report.seen = await play(...JSON.parse(process.env.DRIVE_CALL));
  console.log(JSON.stringify(report));
  await client.close();
  process.exit(0);
}
report.slow = await play("slow_compute", { seconds: 0.3, label: "driven" });
report.asking = await play("confirm_delete", { filename: "a.txt" });
report.failing = await play("failing_job", {});
const call = { method: "tools/call", params: { name: "slow_compute", arguments: { seconds: 60 }, task: {} } };
const created = await client.request(call, CreateTaskResultSchema);
report.cancelled = (await tasks.cancelTask(created.task.taskId)).status;
report.unknown = await tasks.getTask("never was").then(() => "known", (error) => error.code);
report.listed = await tasks.listTasks().then((listed) => listed.tasks.length, () => "withheld");
console.log(JSON.stringify(report));
await client.close();

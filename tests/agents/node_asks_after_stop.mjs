// Hears that it is to end, and asks for a call all the same; says what it was told, and goes.

import { CallRefused, Channel } from "../../examples/node_agent/channel.mjs";

const channel = await Channel.connect();
channel.ready();
await channel.text("ready to be stopped");
await new Promise((told) => channel.signal.addEventListener("abort", told));
try {
  await channel.ask("tool", "shell", { command: "rm" });
  await channel.text("it was granted");
} catch (error) {
  if (!(error instanceof CallRefused)) throw error;
  channel.emit({ type: "log", text: `refused: ${error.message}`, level: "warning" });
}
await channel.end();

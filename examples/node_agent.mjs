// An agent in another language: it speaks the channel by itself, without our SDK.
//
//     agentctl run -- node examples/node_agent.mjs rivers bridges
//
// It tells something about each topic, word by word, by a model that costs nothing, and counts
// the words with a tool.  Each call asks first.  With --listen it goes on with topics that are
// sent to it (`Run.send_input`) until there are no more.  A stop ends it between two words; what
// it has is saved, and said to be half.

import { Channel, RunCancelled } from "./node_agent/channel.mjs";

const MODEL = "stub-1";
const WORDS_PER_S = Number(process.env.MODEL_WORDS_PER_S ?? 20);

/** A model's answer as hosted ones give it: in pieces, each with the tokens so far. */
async function* complete(channel, topic) {
  const words = `Nobody who has seen ${topic} at dawn, from far away and for the first time, `
    + `would say that there is nothing more to be told about ${topic}.`;
  const promptTokens = topic.split(/\s+/).length + 5;
  let completionTokens = 0;
  for (const word of words.split(" ")) {
    await channel.sleep(1000 / WORDS_PER_S);
    completionTokens += 1;
    yield { text: `${word} `, promptTokens, completionTokens };
  }
}

/** Told, and kept in `state` as far as it comes. */
async function tell(channel, state, topic) {
  const entry = { topic, text: "", done: false };
  state.told.push(entry);
  await channel.call("model", MODEL, { topic }, async (call) => {
    for await (const piece of complete(channel, topic)) {
      entry.text += piece.text;
      channel.usage(MODEL, call, piece.promptTokens, piece.completionTokens);
      await channel.text(piece.text, call);
    }
    return entry.text;
  });
  entry.words = await channel.call("tool", "count_words", { text: entry.text }, async () => {
    return entry.text.trim().split(/\s+/).length;
  });
  entry.done = true;
  channel.checkpoint(state);
  await channel.message(entry.text.trim());
}

async function* topics(channel, words) {
  yield* words.filter((word) => word !== "--listen");
  if (words.includes("--listen")) yield* channel.inputs();
}

async function main() {
  const channel = await Channel.connect();
  const state = channel.start.resumed?.checkpoint ?? { told: [] };
  try {
    channel.ready();
    for await (const topic of topics(channel, process.argv.slice(2))) {
      await tell(channel, state, String(topic));
      channel.progress(state.told.length, 0, `told of ${topic}`);
    }
    await channel.end({ result: state });
  } catch (error) {
    // The last words: until the grace is over, reports still go out.
    try {
      channel.checkpoint(state);
    } catch {
      // It is too long for a message: what was saved before stands.
    }
    if (error instanceof RunCancelled) await channel.end();
    else await channel.end({ error, code: 1 }); // a CallRefused, too: there is no story then
  }
}

await main();

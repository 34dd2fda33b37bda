// The agent's end of the channel, as docs/protocol.md describes it.  Node.js 18 and nothing else.

import { once } from "node:events";
import { Socket } from "node:net";
import { decode, encode } from "./msgpack.mjs";

const VERSION = 1;
const MAX_FRAME = 1 << 20; // until `start` says otherwise; what we read is never longer
const BATCH_BYTES = 1 << 18;
const UNSUPERVISED = 70; // exit code of an agent whose supervisor is gone

/** The supervisor does not permit this call: `message` says why.  One may go on without it. */
export class CallRefused extends Error {}

/** The run is being stopped; thrown where something is waited for. */
export class RunCancelled extends Error {}

export class Channel {
  /** What the supervisor answered to `hello`: `run`, `input`, `resumed`, ... */
  start = null;
  /** Aborted when the run is to end; its `reason` is a RunCancelled. */
  get signal() { return this.#cancelling.signal; }
  /** Milliseconds of performance.now() at which SIGTERM follows; Infinity before a cancel. */
  deadline = Infinity;
  /** So many of our events are on the supervisor's disk. */
  durable = 0;

  #pipe; // that we write to
  #unread = Buffer.alloc(0);
  #maxFrame = MAX_FRAME;
  #cancelling = new AbortController();
  #started = deferred();
  #verdicts = new Map(); // call id -> how to settle the one who waits
  #inputs = [];
  #inputEnded = false;
  #inputCame = deferred();
  #events = []; // encoded, not yet sent
  #eventBytes = 0;
  #eventsSent = 0;
  #flushing = false;
  #calls = 0;
  #beats = 0;
  #ended = false;

  /**
   * Take the channel from the environment and shake hands.  Resolves once the supervisor has
   * said what there is to know: a run that is stopped already has its `signal` aborted.
   */
  static async connect(environment = process.env) {
    const descriptors = /^(\d+),(\d+)$/.exec(environment.AGENTCTL_CHANNEL_FD ?? "");
    if (!descriptors) throw new Error("not started by agentctl: try agentctl run -- node ...");
    const [reads, writes] = descriptors.slice(1).map(Number);
    const channel = new Channel(
      new Socket({ fd: reads, readable: true, writable: false }),
      new Socket({ fd: writes, readable: false, writable: true }),
    );
    channel.#say({ type: "hello", version: VERSION, sdk: `node_agent (node ${process.version})` });
    await channel.#started.promise;
    return channel;
  }

  /** Two pipes: one that we read from, and one that we write to. */
  constructor(reads, writes) {
    this.#pipe = writes;
    reads.on("data", (bytes) => this.#read(bytes));
    // Its supervisor is dead, or what it says makes no sense: nobody watches over us any more.
    for (const event of ["end", "close", "error"]) {
      for (const pipe of [reads, writes]) pipe.on(event, () => this.#abandoned());
    }
  }

  // --- what an agent says --------------------------------------------------------

  /** From here on it is our own code that runs. */
  ready() {
    this.#say({ type: "ready" });
  }

  /**
   * Report an event: `{type: "text", text: "..."}` and so on.  What it returns can be awaited,
   * so that an agent which says more than is read does not grow without end.
   */
  emit(event) {
    const bytes = encode(event);
    if (bytes.length > this.#maxFrame - 64) {
      throw new RangeError(`an event of ${bytes.length} bytes is too long`);
    }
    if (this.#eventBytes + bytes.length > Math.min(BATCH_BYTES, this.#maxFrame - 64)) this.#flush();
    this.#events.push(bytes);
    this.#eventBytes += bytes.length;
    if (!this.#flushing) {
      this.#flushing = true;
      setImmediate(() => this.#flush());
    }
    return this.#pipe.writableNeedDrain ? once(this.#pipe, "drain") : Promise.resolve();
  }

  text(text, call = "") {
    return this.emit({ type: "text", text, ...(call && { call }) });
  }

  message(text, fields = {}) {
    return this.emit({ type: "message", text, ...fields });
  }

  progress(done, total = 0, note = "") {
    return this.emit({ type: "progress", done, total, note });
  }

  usage(model, call, promptTokens, completionTokens, quality = "reported") {
    return this.emit({
      type: "usage", model, call, quality,
      prompt_tokens: promptTokens, completion_tokens: completionTokens,
    });
  }

  checkpoint(state) {
    return this.emit({ type: "checkpoint", state });
  }

  /**
   * Make a call, if we may: `body` is given the call's id and a signal, and gives its result.
   * Throws CallRefused if we may not, and RunCancelled without asking once we are to end.
   */
  async call(kind, name, args, body) {
    if (this.signal.aborted) throw this.signal.reason;
    const id = await this.ask(kind, name, args).catch((refused) => {
      throw this.signal.aborted ? this.signal.reason : refused;
    });
    try {
      const result = await body(id, this.signal);
      this.finish({ call: id, result });
      return result;
    } catch (error) {
      if (error === this.signal.reason) this.finish({ call: id, outcome: "cancelled" });
      else this.finish({ call: id, outcome: "error", error: oneLine(error) });
      throw error;
    }
  }

  /** Ask for a call; the id of one that is granted.  Throws CallRefused. */
  async ask(kind, name, args) {
    const call = String(++this.#calls);
    const answer = deferred();
    this.#verdicts.set(call, answer);
    this.#say({ type: "ask", call, kind, name, args });
    const { verdict, why } = await answer.promise;
    if (verdict !== "granted") throw new CallRefused(why || "refused");
    return call;
  }

  /** A granted call is over: `{call, outcome, result, error}`. */
  finish(report) {
    this.#say({ type: "call_finished", ...report });
  }

  /** The items that people send to the running agent, as they come, until no more can. */
  async *inputs() {
    while (true) {
      while (this.#inputs.length) yield this.#inputs.shift();
      if (this.#inputEnded) return;
      this.#inputCame = deferred();
      await this.#unlessCancelled(this.#inputCame.promise);
    }
  }

  /** Wait so long.  Throws RunCancelled as soon as we are to end. */
  async sleep(ms) {
    let timer;
    try {
      await this.#unlessCancelled(new Promise((wake) => { timer = setTimeout(wake, ms); }));
    } finally {
      clearTimeout(timer);
    }
  }

  /** The last words, and the end of this process once they are out. */
  async end({ result, error, code = 0 } = {}) {
    const last = [];
    if (error !== undefined) {
      last.push({
        type: "error", kind: (error?.name || "Error").slice(0, 256),
        text: String(error?.message ?? error), traceback: String(error?.stack ?? ""),
      });
    } else if (result !== undefined) {
      last.push({ type: "result", value: result });
    }
    last.push({ type: "bye", cancelled: this.signal.aborted });
    this.#ended = true;
    await new Promise((sent) => this.#say(last, sent));
    process.exit(code);
  }

  // --- what an agent hears -------------------------------------------------------

  #read(bytes) {
    this.#unread = this.#unread.length ? Buffer.concat([this.#unread, bytes]) : bytes;
    try {
      for (let body; (body = this.#nextBody()) !== null; ) {
        const said = decode(body);
        for (const message of Array.isArray(said) ? said : [said]) this.#hear(message);
      }
    } catch {
      this.#abandoned();
    }
  }

  #nextBody() {
    if (this.#unread.length < 4) return null;
    const length = this.#unread.readUInt32BE(0);
    if (length === 0 || length > MAX_FRAME) throw new SyntaxError(`a frame of ${length} bytes`);
    if (this.#unread.length < 4 + length) return null;
    const body = this.#unread.subarray(4, 4 + length);
    this.#unread = this.#unread.subarray(4 + length);
    return body;
  }

  #hear(message) {
    switch (message.type) {
      case "start":
        this.start = message;
        this.#maxFrame = Math.min(message.max_frame ?? MAX_FRAME, MAX_FRAME);
        // Who waits goes on only after all that came with it: a cancel in the same breath counts.
        return this.#started.resolve();
      case "verdict": {
        const waiting = this.#verdicts.get(message.call);
        this.#verdicts.delete(message.call);
        return waiting?.resolve(message);
      }
      case "input":
        this.#inputs.push(message.data);
        return this.#inputCame.resolve();
      case "input_end":
        this.#inputEnded = true;
        return this.#inputCame.resolve();
      case "cancel":
        this.deadline = Math.min(this.deadline, performance.now() + message.deadline_s * 1000);
        return this.#cancelling.abort(new RunCancelled(message.detail || message.reason));
      case "ack":
        this.durable = Math.max(this.durable, Number(message.seq));
        return;
      case "ping":
        this.#beats += 1; // one thread: its loop turns when the channel is served
        return this.#say({ type: "beat", thread: this.#beats, loop: this.#beats });
      default: // a supervisor newer than we are has something to say that we cannot need
    }
  }

  #abandoned() {
    if (!this.#ended) process.exit(UNSUPERVISED);
  }

  // --- how it is done --------------------------------------------------------------

  /** Messages in one frame, behind the events that were reported before them. */
  #say(messages, sent) {
    this.#flush();
    const body = encode(messages);
    if (body.length > this.#maxFrame) {
      throw new RangeError(`a message of ${body.length} bytes is too long`);
    }
    this.#write(body, sent);
  }

  #flush() {
    this.#flushing = false;
    if (!this.#events.length) return;
    const head = encode({ type: "events", first: this.#eventsSent + 1, events: [] });
    // The empty array at the end of it gives way to one of so many events.
    const count = Buffer.from([0xdd, 0, 0, 0, 0]);
    count.writeUInt32BE(this.#events.length, 1);
    this.#eventsSent += this.#events.length;
    const body = Buffer.concat([head.subarray(0, -1), count, ...this.#events]);
    this.#events = [];
    this.#eventBytes = 0;
    this.#write(body);
  }

  #write(body, sent) {
    const length = Buffer.allocUnsafe(4);
    length.writeUInt32BE(body.length);
    this.#pipe.write(Buffer.concat([length, body]), sent);
  }

  /** What `promise` gives, unless we are to end before it does. */
  async #unlessCancelled(promise) {
    let abort;
    const cancelled = new Promise((_, reject) => {
      abort = () => reject(this.signal.reason);
      if (this.signal.aborted) abort();
      else this.signal.addEventListener("abort", abort);
    });
    try {
      return await Promise.race([promise, cancelled]);
    } finally {
      this.signal.removeEventListener("abort", abort);
    }
  }
}

function deferred() {
  const it = {};
  it.promise = new Promise((resolve, reject) => Object.assign(it, { resolve, reject }));
  return it;
}

function oneLine(error) {
  return String(error?.message ?? error).replace(/\s+/g, " ").slice(0, 2000);
}

// Reads one msgpack value from stdin and writes it to stdout again, by the example's own msgpack.

import { readFileSync, writeSync } from "node:fs";
import { decode, encode } from "../../examples/node_agent/msgpack.mjs";

const bytes = encode(decode(readFileSync(0)));
for (let at = 0; at < bytes.length; ) at += writeSync(1, bytes, at);

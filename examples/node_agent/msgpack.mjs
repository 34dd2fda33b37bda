// msgpack, as far as the channel needs it: what JSON can say, integers of 64 bits, and bytes.
//
// An integer beyond Number.MAX_SAFE_INTEGER is a BigInt, in both directions.  A number without
// a fraction goes out as an integer; the channel takes one where it says float.

// A value may nest 100 deep, and stands in a field of an event of a batch.
const MAX_NESTING = 110;

/** The bytes of `value`.  Throws TypeError or RangeError for what msgpack, or JSON, cannot say. */
export function encode(value) {
  const out = new Output();
  write(out, value, 0);
  return out.bytes();
}

/** The value that all of `bytes` say.  Throws SyntaxError if they say none, or more than one. */
export function decode(bytes) {
  const input = new Input(bytes);
  const value = read(input, 0);
  if (input.at !== bytes.length) throw new SyntaxError("bytes behind the value");
  return value;
}

class Output {
  #buffer = Buffer.allocUnsafe(1024);
  #length = 0;

  /** Room for `size` more bytes: the buffer, and where they begin. */
  room(size) {
    if (this.#length + size > this.#buffer.length) {
      const bigger = Buffer.allocUnsafe(Math.max(this.#buffer.length * 2, this.#length + size));
      this.#buffer.copy(bigger, 0, 0, this.#length);
      this.#buffer = bigger;
    }
    const at = this.#length;
    this.#length += size;
    return [this.#buffer, at];
  }

  byte(value) {
    const [buffer, at] = this.room(1);
    buffer[at] = value;
  }

  append(bytes) {
    const [buffer, at] = this.room(bytes.length);
    buffer.set(bytes, at);
  }

  bytes() {
    return this.#buffer.subarray(0, this.#length);
  }
}

function write(out, value, depth) {
  if (depth > MAX_NESTING) throw new RangeError("nested too deeply");
  switch (typeof value) {
    case "undefined":
      return out.byte(0xc0);
    case "boolean":
      return out.byte(value ? 0xc3 : 0xc2);
    case "number":
      if (Number.isSafeInteger(value)) return writeInteger(out, BigInt(value));
      return writeFloat(out, value);
    case "bigint":
      return writeInteger(out, value);
    case "string":
      return writeBlock(out, Buffer.from(value, "utf8"), 0xa0, 32, [0xd9, 0xda, 0xdb]);
    case "object":
      return writeObject(out, value, depth);
    default:
      throw new TypeError(`not a JSON value: a ${typeof value}`);
  }
}

function writeObject(out, value, depth) {
  if (value === null) return out.byte(0xc0);
  if (value instanceof Uint8Array) return writeBlock(out, value, 0, 0, [0xc4, 0xc5, 0xc6]);
  if (Array.isArray(value)) {
    writeLength(out, value.length, 0x90, 16, [null, 0xdc, 0xdd]);
    for (const item of value) write(out, item, depth + 1);
    return;
  }
  // A field without a value is left out: it then has its default.
  const fields = Object.entries(value).filter(([, item]) => item !== undefined);
  writeLength(out, fields.length, 0x80, 16, [null, 0xde, 0xdf]);
  for (const [key, item] of fields) {
    write(out, key, depth + 1);
    write(out, item, depth + 1);
  }
}

function writeInteger(out, value) {
  if (value >= 0n && value < 128n) return out.byte(Number(value));
  if (value < 0n && value >= -32n) return out.byte(256 + Number(value));
  if (value < -(1n << 63n) || value >= 1n << 64n) throw new RangeError("over 64 bits");
  const [buffer, at] = out.room(9);
  buffer[at] = value < 0n ? 0xd3 : 0xcf;
  if (value < 0n) buffer.writeBigInt64BE(value, at + 1);
  else buffer.writeBigUInt64BE(value, at + 1);
}

function writeFloat(out, value) {
  if (!Number.isFinite(value)) throw new RangeError(`not a JSON value: ${value}`);
  const [buffer, at] = out.room(9);
  buffer[at] = 0xcb;
  buffer.writeDoubleBE(value, at + 1);
}

function writeBlock(out, bytes, short, shorter, kinds) {
  writeLength(out, bytes.length, short, shorter, kinds);
  out.append(bytes);
}

/** The head of something that has a length: in one byte below `shorter`, else as a kind says. */
function writeLength(out, length, short, shorter, [kind8, kind16, kind32]) {
  if (length < shorter) return out.byte(short | length);
  if (kind8 !== null && length < 0x100) {
    const [buffer, at] = out.room(2);
    buffer[at] = kind8;
    buffer[at + 1] = length;
  } else if (length < 0x10000) {
    const [buffer, at] = out.room(3);
    buffer[at] = kind16;
    buffer.writeUInt16BE(length, at + 1);
  } else {
    const [buffer, at] = out.room(5);
    buffer[at] = kind32;
    buffer.writeUInt32BE(length, at + 1);
  }
}

class Input {
  at = 0;

  constructor(bytes) {
    this.bytes = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
  }

  /** Where the next `size` bytes begin. */
  take(size) {
    const begin = this.at;
    this.at += size;
    if (this.at > this.bytes.length) throw new SyntaxError("the value is cut off");
    return begin;
  }

  unsigned(size) {
    const at = this.take(size);
    return size === 8 ? this.bytes.readBigUInt64BE(at) : this.bytes.readUIntBE(at, size);
  }

  signed(size) {
    const at = this.take(size);
    return size === 8 ? this.bytes.readBigInt64BE(at) : this.bytes.readIntBE(at, size);
  }
}

const UTF8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

function read(input, depth) {
  if (depth > MAX_NESTING) throw new SyntaxError("nested too deeply");
  const head = input.unsigned(1);
  if (head < 0x80) return head;
  if (head < 0x90) return readMap(input, head & 0x0f, depth);
  if (head < 0xa0) return readArray(input, head & 0x0f, depth);
  if (head < 0xc0) return readText(input, head & 0x1f);
  if (head >= 0xe0) return head - 0x100;
  switch (head) {
    case 0xc0: return null;
    case 0xc2: return false;
    case 0xc3: return true;
    case 0xc4: case 0xc5: case 0xc6: return readBytes(input, input.unsigned(1 << (head - 0xc4)));
    case 0xca: return input.bytes.readFloatBE(input.take(4));
    case 0xcb: return input.bytes.readDoubleBE(input.take(8));
    case 0xcc: case 0xcd: case 0xce: case 0xcf: return plain(input.unsigned(1 << (head - 0xcc)));
    case 0xd0: case 0xd1: case 0xd2: case 0xd3: return plain(input.signed(1 << (head - 0xd0)));
    case 0xd9: case 0xda: case 0xdb: return readText(input, input.unsigned(1 << (head - 0xd9)));
    case 0xdc: case 0xdd: return readArray(input, input.unsigned(2 << (head - 0xdc)), depth);
    case 0xde: case 0xdf: return readMap(input, input.unsigned(2 << (head - 0xde)), depth);
    default: throw new SyntaxError(`no JSON value begins with byte ${head}`);
  }
}

function plain(integer) {
  if (typeof integer === "number") return integer;
  const number = Number(integer);
  return Number.isSafeInteger(number) ? number : integer;
}

function readBytes(input, length) {
  const at = input.take(length);
  return input.bytes.subarray(at, at + length);
}

function readText(input, length) {
  try {
    return UTF8.decode(readBytes(input, length));
  } catch (error) {
    if (error instanceof SyntaxError) throw error;
    throw new SyntaxError("a text that is not UTF-8");
  }
}

function readArray(input, length, depth) {
  const items = [];
  for (let count = 0; count < length; count++) items.push(read(input, depth + 1));
  return items;
}

function readMap(input, length, depth) {
  // Without a prototype: a key may be called __proto__.
  const map = Object.create(null);
  for (let count = 0; count < length; count++) {
    const key = read(input, depth + 1);
    if (typeof key !== "string") throw new SyntaxError("a key that is no text");
    map[key] = read(input, depth + 1);
  }
  return map;
}

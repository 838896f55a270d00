// SHA-256 of files. Browsers have it on pages that came over TLS, and for what fits into memory; this does for the rest.

const AT_ONCE = 32 << 20;
const PIECE = 4 << 20;

const K = new Uint32Array(64);
const START = new Uint32Array(8);

// the first bits of the fractional parts of roots of primes, as the standard has them
for (let candidate = 2, found = 0; found < 64; candidate += 1) {
  let prime = true;
  for (let factor = 2; factor * factor <= candidate; factor += 1) if (candidate % factor === 0) prime = false;
  if (!prime) continue;
  if (found < 8) START[found] = (Math.sqrt(candidate) % 1) * 2 ** 32;
  K[found] = (Math.cbrt(candidate) % 1) * 2 ** 32;
  found += 1;
}

export class Sha256 {
  #state = START.slice();
  #words = new Uint32Array(64);
  #block = new Uint8Array(64);
  #held = 0;
  #length = 0;

  update(bytes) {
    this.#length += bytes.length;
    let at = 0;
    while (at < bytes.length) {
      if (!this.#held && bytes.length - at >= 64) {
        this.#mix(bytes, at);
        at += 64;
        continue;
      }
      const taken = Math.min(64 - this.#held, bytes.length - at);
      this.#block.set(bytes.subarray(at, at + taken), this.#held);
      this.#held += taken;
      at += taken;
      if (this.#held === 64) {
        this.#mix(this.#block, 0);
        this.#held = 0;
      }
    }
    return this;
  }

  hex() {
    const length = this.#length;
    const end = new Uint8Array(((this.#held < 56 ? 56 : 120) - this.#held) + 8);
    end[0] = 0x80;
    new DataView(end.buffer).setUint32(end.length - 8, Math.floor(length / 2 ** 29));
    new DataView(end.buffer).setUint32(end.length - 4, (length << 3) >>> 0);
    this.update(end);
    return [...this.#state].map((word) => word.toString(16).padStart(8, "0")).join("");
  }

  #mix(bytes, at) {
    const w = this.#words;
    for (let i = 0, j = at; i < 16; i += 1, j += 4) w[i] = (bytes[j] << 24) | (bytes[j + 1] << 16) | (bytes[j + 2] << 8) | bytes[j + 3];
    for (let i = 16; i < 64; i += 1) {
      const x = w[i - 15];
      const y = w[i - 2];
      const s0 = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
      const s1 = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    let [a, b, c, d, e, f, g, h] = this.#state;
    for (let i = 0; i < 64; i += 1) {
      const s1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
      const t1 = (h + s1 + ((e & f) ^ (~e & g)) + K[i] + w[i]) | 0;
      const s0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
      const t2 = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      h = g; g = f; f = e; e = (d + t1) | 0; d = c; c = b; b = a; a = (t1 + t2) | 0;
    }
    [a, b, c, d, e, f, g, h].forEach((word, i) => { this.#state[i] += word; });
  }
}

export async function digestOf(file, signal) {
  if (globalThis.crypto?.subtle && file.size <= AT_ONCE) {
    const found = await crypto.subtle.digest("SHA-256", await file.arrayBuffer());
    return [...new Uint8Array(found)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  }
  const sha = new Sha256();
  for (let at = 0; at < file.size; at += PIECE) {
    sha.update(new Uint8Array(await file.slice(at, at + PIECE).arrayBuffer()));
    signal?.throwIfAborted();
  }
  return sha.hex();
}

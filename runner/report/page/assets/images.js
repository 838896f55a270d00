// Which addresses are images of the report itself: data that says of itself how large it is, as its kind of image does.

const MAX_PIXELS = 40e6;
const LOOKED_AT = 256 * 1024;
const IMAGE = /^data:image\/(png|jpeg|gif|webp);base64,([A-Za-z0-9+/]+={0,2})$/;

function bytesOf(base64) {
  const part = base64.slice(0, LOOKED_AT - (LOOKED_AT % 4));
  const cut = part.slice(0, part.length - (part.length % 4));
  return new DataView(Uint8Array.from(atob(cut), (character) => character.charCodeAt(0)).buffer);
}

function nameAt(view, at, name) {
  return [...name].every((character, offset) => view.getUint8(at + offset) === character.charCodeAt(0));
}

const SIZES = {
  png: (view) => nameAt(view, 0, "\x89PNG\r\n\x1a\n") && [view.getUint32(16), view.getUint32(20)],
  gif: (view) => nameAt(view, 0, "GIF8") && [view.getUint16(6, true), view.getUint16(8, true)],
  webp: (view) => {
    if (!nameAt(view, 0, "RIFF") || !nameAt(view, 8, "WEBP")) return null;
    if (nameAt(view, 12, "VP8X")) return [1 + (view.getUint32(24, true) & 0xffffff), 1 + (view.getUint32(26, true) >>> 8)];
    if (nameAt(view, 12, "VP8 ")) return [view.getUint16(26, true) & 0x3fff, view.getUint16(28, true) & 0x3fff];
    if (!nameAt(view, 12, "VP8L")) return null;
    const bits = view.getUint32(21, true);
    return [1 + (bits & 0x3fff), 1 + ((bits >> 14) & 0x3fff)];
  },
  jpeg: (view) => {
    let at = 2;
    if (view.getUint16(0) !== 0xffd8) return null;
    for (;;) {
      const marker = view.getUint16(at);
      if (marker >> 8 !== 0xff) return null;
      const frame = marker >= 0xffc0 && marker <= 0xffcf && ![0xffc4, 0xffc8, 0xffcc].includes(marker);
      if (frame) return [view.getUint16(at + 7), view.getUint16(at + 5)];
      at += 2 + view.getUint16(at + 2);
    }
  },
};

// width and height; null when it is no image of that kind
function sizeOf(kind, base64) {
  try {
    return SIZES[kind](bytesOf(base64)) || null;
  } catch (error) {
    // cut off before it says so, or no base64 after all
    if (error instanceof RangeError || error instanceof DOMException) return null;
    throw error;
  }
}

// what can be shown of an address: { image } or { why }
function imageFrom(url) {
  const match = typeof url === "string" ? IMAGE.exec(url.replace(/\s+/g, "")) : null;
  const size = match && sizeOf(match[1], match[2]);
  if (!size) return { why: "An image that is not in the report" };
  const [width, height] = size;
  if (width * height > MAX_PIXELS) return { why: `An image of ${width} × ${height} pixels, too large to be shown` };
  const alt = `${match[1].toUpperCase()} image of ${width} × ${height} pixels in the transcript`;
  return { image: el("img", { src: match[0], alt, width, height, loading: "lazy" }) };
}

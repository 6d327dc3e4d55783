// Frames as the server sends them, made ready to draw: pixels, owners, outlines, thumbnails.

// The hues of the package's own drawings; slot i takes colour i modulo ten.
export const COLORS = [
  "#ee7733", "#0077bb", "#ee3377", "#009988", "#ccbb44",
  "#33bbee", "#cc3311", "#aa3377", "#228833", "#bbbbbb",
];
const FEWEST_PIXELS = 10; // an object has more

export const color = (slot) => COLORS[slot % COLORS.length];

export class Frame {
  static async from(answer, size) {
    const bytes = Uint8Array.from(atob(answer.picture), (character) => character.charCodeAt(0));
    const bitmap = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
    return new Frame(answer, size, bitmap);
  }

  #outlines = new Map();

  constructor(answer, size, bitmap) {
    this.number = answer.number;
    this.slots = answer.slots;
    this.size = size;
    this.bitmap = bitmap;
    this.owner = expandRuns(answer.runs, size * size);
  }

  ownerAt(x, y) {
    const inside = x >= 0 && y >= 0 && x < this.size && y < this.size;
    return inside ? this.owner[Math.floor(y) * this.size + Math.floor(x)] : null;
  }

  isObject(slot) {
    const view = this.slots[slot];
    return Boolean(view?.is_present && !view.is_background && view.area >= FEWEST_PIXELS);
  }

  objects() {
    return this.slots.filter((slot) => this.isObject(slot.index));
  }

  // The border of a slot's pixels, in pixels of the picture.
  outline(slot) {
    if (!this.#outlines.has(slot)) this.#outlines.set(slot, traceBorder(this.owner, this.size, slot));
    return this.#outlines.get(slot);
  }

  // Where a slot's number is written: the middle of its pixels.
  middle(slot) {
    let [x, y, count] = [0, 0, 0];
    this.owner.forEach((owner, index) => {
      if (owner !== slot) return;
      x += (index % this.size) + 0.5;
      y += Math.floor(index / this.size) + 0.5;
      count += 1;
    });
    return count ? [x / count, y / count] : null;
  }

  // A slot cut out of the picture on a transparent square.
  thumbnail(slot, side) {
    const [left, top, right, bottom] = this.slots[slot].box ?? [0, 0, this.size, this.size];
    const piece = document.createElement("canvas");
    piece.width = piece.height = this.size;
    const pen = piece.getContext("2d");
    pen.drawImage(this.bitmap, 0, 0);
    const pixels = pen.getImageData(0, 0, this.size, this.size);
    this.owner.forEach((owner, index) => {
      if (owner !== slot) pixels.data[4 * index + 3] = 0;
    });
    pen.putImageData(pixels, 0, 0);
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = side;
    const into = canvas.getContext("2d");
    into.imageSmoothingEnabled = false;
    const zoom = Math.min(side / (right - left), side / (bottom - top));
    const [width, height] = [zoom * (right - left), zoom * (bottom - top)];
    into.drawImage(
      piece, left, top, right - left, bottom - top,
      (side - width) / 2, (side - height) / 2, width, height,
    );
    return canvas;
  }
}

function expandRuns(runs, count) {
  const owner = new Uint8Array(count);
  let place = 0;
  for (let index = 0; index < runs.length; index += 2) {
    owner.fill(runs[index + 1], place, place + runs[index]);
    place += runs[index];
  }
  return owner;
}

function traceBorder(owner, size, slot) {
  const path = new Path2D();
  const is = (x, y) => x >= 0 && y >= 0 && x < size && y < size && owner[y * size + x] === slot;
  const line = (x, y, toX, toY) => {
    path.moveTo(x, y);
    path.lineTo(toX, toY);
  };
  for (let y = 0; y < size; y += 1) {
    for (let x = 0; x < size; x += 1) {
      if (!is(x, y)) continue;
      if (!is(x, y - 1)) line(x, y, x + 1, y);
      if (!is(x, y + 1)) line(x, y + 1, x + 1, y + 1);
      if (!is(x - 1, y)) line(x, y, x, y + 1);
      if (!is(x + 1, y)) line(x + 1, y, x + 1, y + 1);
    }
  }
  return path;
}

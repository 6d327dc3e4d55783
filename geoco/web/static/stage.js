// The picture, and above it outlines, numbers and handles. Pointers become gestures.

import { color } from "./frames.js";
import { limitFactor } from "./gestures.js";

const HANDLE = 5; // half a side, in CSS pixels
const REACH = { mouse: 11, pen: 14, touch: 24 }; // how near is on a handle
const GRIP = 13; // radius of what the line between before and after is held by
const WHEEL = 0.0012; // logarithm of size per unit of a wheel

export class Stage {
  #picture;
  #overlay;
  #gestures;
  #select;
  #resplit;
  #drag = null;
  frame = null; // whose outlines are drawn
  shown = null; // whose pixels are: of the frame itself, or of a preview
  selected = null;
  target = null; // the object that something is dragged over
  settling = null; // the gesture that is over while its edit is not yet done
  showOutlines = true;
  before = null; // what the left part shows, or null
  original = null; // what is shown instead of the model's picture, or null
  split = 0.5;

  // select(slot) and resplit(share) are told what is pressed and how the line is dragged.
  constructor({ picture, overlay, gestures, select, resplit }) {
    this.#picture = picture;
    this.#overlay = overlay;
    this.#gestures = gestures;
    this.#select = select;
    this.#resplit = resplit;
    overlay.addEventListener("pointerdown", (event) => this.#down(event));
    overlay.addEventListener("pointermove", (event) => this.#move(event));
    overlay.addEventListener("pointerup", (event) => this.#up(event));
    overlay.addEventListener("pointercancel", () => this.#stop());
    overlay.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    new ResizeObserver(() => this.draw()).observe(overlay);
  }

  get #zoom() {
    return this.#overlay.clientWidth / this.frame.size;
  }

  // A place on the screen, in pixels of the picture.
  place({ clientX, clientY }) {
    const box = this.#overlay.getBoundingClientRect();
    const zoom = box.width / this.frame.size;
    return [(clientX - box.left) / zoom, (clientY - box.top) / zoom];
  }

  objectAt(event) {
    if (!this.frame) return null;
    const owner = this.frame.ownerAt(...this.place(event));
    return owner !== null && this.frame.isObject(owner) ? owner : null;
  }

  // Where a slot is, in pixels of the picture.
  pivot(slot) {
    const { x, y } = this.frame.slots[slot];
    const { size } = this.frame;
    return [((x + 1) / 2) * (size - 1) + 0.5, ((y + 1) / 2) * (size - 1) + 0.5];
  }

  // -- drawing ----------------------------------------------------------------------------------

  draw() {
    if (!this.frame) return;
    this.#drawPicture();
    const ratio = window.devicePixelRatio || 1;
    const overlay = this.#overlay;
    const side = Math.round(overlay.clientWidth * ratio);
    if (overlay.width !== side) overlay.width = overlay.height = side;
    const pen = overlay.getContext("2d");
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.clearRect(0, 0, side, side);
    pen.scale(ratio, ratio);
    if (this.before && !this.original) this.#drawSplit(pen);
    if (!this.showOutlines) return;
    for (const { index } of this.frame.objects()) {
      if (index !== this.selected) this.#drawSlot(pen, index);
    }
    if (this.selected !== null) this.#drawSlot(pen, this.selected);
  }

  #drawPicture() {
    const { size } = this.frame;
    const picture = this.#picture;
    if (picture.width !== size) picture.width = picture.height = size;
    const pen = picture.getContext("2d", { willReadFrequently: true });
    pen.drawImage(this.original ?? (this.shown ?? this.frame).bitmap, 0, 0, size, size);
    if (this.original) return;
    const width = Math.round(size * this.split);
    if (this.before && width) pen.drawImage(this.before, 0, 0, width, size, 0, 0, width, size);
  }

  #drawSplit(pen) {
    const side = this.#overlay.clientWidth;
    const x = (Math.round(this.frame.size * this.split) / this.frame.size) * side;
    pen.fillStyle = "rgb(255 255 255 / 85%)";
    pen.fillRect(x - 1, 0, 2, side);
    drawGrip(pen, Math.min(side - GRIP, Math.max(GRIP, x)), side - 2 * GRIP);
  }

  // Whether the line between before and after is under the pointer; objects below it still count.
  #onSplit(event, [x, y]) {
    if (!this.before || this.original) return false;
    const reach = (REACH[event.pointerType] ?? REACH.mouse) / this.#zoom;
    const line = this.frame.size * this.split;
    const onGrip = y > this.frame.size - (4 * GRIP) / this.#zoom;
    return Math.abs(x - line) <= (onGrip ? Math.max(reach, GRIP / this.#zoom) : reach / 2);
  }

  // Where the gesture under way takes a point of a slot.
  #moved(slot, [x, y]) {
    const gesture = this.#gestures.current ?? this.settling;
    if (!gesture || gesture.slot !== slot) return [x, y];
    const [pivotX, pivotY] = this.pivot(slot);
    return [
      pivotX + gesture.factor * (x - pivotX) + gesture.dx,
      pivotY + gesture.factor * (y - pivotY) + gesture.dy,
    ];
  }

  #drawSlot(pen, slot) {
    const zoom = this.#zoom;
    const chosen = slot === this.selected;
    const [left, top] = this.#moved(slot, [0, 0]);
    const factor = this.#moved(slot, [1, 0])[0] - left;
    const path = new Path2D();
    path.addPath(
      this.frame.outline(slot),
      new DOMMatrix([zoom * factor, 0, 0, zoom * factor, zoom * left, zoom * top]),
    );
    pen.lineCap = "round";
    pen.strokeStyle = "rgb(0 0 0 / 45%)";
    pen.lineWidth = chosen ? 5 : 3;
    pen.stroke(path);
    pen.strokeStyle = slot === this.target ? "#fff" : color(slot);
    pen.lineWidth = chosen || slot === this.target ? 3 : 1.5;
    pen.stroke(path);
    const middle = this.frame.middle(slot);
    if (middle) this.#drawNumber(pen, slot, this.#moved(slot, middle), chosen);
    if (chosen) this.handles().forEach(([x, y]) => drawHandle(pen, zoom * x, zoom * y));
  }

  #drawNumber(pen, slot, [x, y], chosen) {
    const zoom = this.#zoom;
    pen.beginPath();
    pen.arc(zoom * x, zoom * y, chosen ? 11 : 9, 0, 2 * Math.PI);
    pen.fillStyle = chosen ? color(slot) : "rgb(20 22 26 / 62%)";
    pen.fill();
    pen.fillStyle = "#fff";
    pen.font = `600 ${chosen ? 13 : 11}px system-ui, sans-serif`;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.fillText(String(slot), zoom * x, zoom * y + 0.5);
  }

  // The corners of the selected slot's box, in pixels of the picture.
  handles() {
    const slot = this.selected;
    const box = slot === null ? null : this.frame.slots[slot].box;
    if (!box || !this.frame.isObject(slot)) return [];
    const [left, top, right, bottom] = box;
    return [[left, top], [right, top], [left, bottom], [right, bottom]].map((corner) =>
      this.#moved(slot, corner),
    );
  }

  // -- pointers ---------------------------------------------------------------------------------

  #onHandle(event, place) {
    const reach = (REACH[event.pointerType] ?? REACH.mouse) / this.#zoom;
    return this.handles().some(([x, y]) => Math.hypot(x - place[0], y - place[1]) <= reach);
  }

  #down(event) {
    if (!this.frame || event.button !== 0 || !event.isPrimary) return;
    const place = this.place(event);
    this.#gestures.end();
    if (this.#onSplit(event, place)) {
      this.#drag = { op: "split" };
      this.#overlay.setPointerCapture(event.pointerId);
      return;
    }
    if (this.#onHandle(event, place)) {
      this.#drag = { op: "resize", slot: this.selected, place };
    } else {
      const slot = this.objectAt(event);
      this.#select(slot);
      if (slot === null) return;
      this.#drag = { op: "move", slot, place };
    }
    this.#overlay.setPointerCapture(event.pointerId);
    this.#gestures.start(this.#drag.op, this.#drag.slot);
  }

  #move(event) {
    if (!this.frame) return;
    const place = this.place(event);
    if (!this.#drag) {
      const grab = this.objectAt(event) === null ? "default" : "grab";
      const edge = this.#onHandle(event, place) ? "nwse-resize" : grab;
      this.#overlay.style.cursor = this.#onSplit(event, place) ? "ew-resize" : edge;
      return;
    }
    if (this.#drag.op === "split") {
      this.#resplit(Math.min(1, Math.max(0, place[0] / this.frame.size)));
      return;
    }
    const { op, slot, place: start } = this.#drag;
    if (op === "move") {
      this.#overlay.style.cursor = "grabbing";
      this.#gestures.update({ dx: place[0] - start[0], dy: place[1] - start[1] });
      return;
    }
    const [x, y] = this.pivot(slot);
    const reach = Math.max(1, Math.hypot(start[0] - x, start[1] - y));
    const factor = Math.hypot(place[0] - x, place[1] - y) / reach;
    this.#gestures.update({ factor: limitFactor(factor) });
  }

  #up() {
    if (!this.#drag) return;
    this.#drag = null;
    this.#overlay.style.cursor = "default";
    this.#gestures.end();
  }

  #stop() {
    this.#drag = null;
    this.#gestures.cancel();
  }

  // The wheel resizes what is selected; elsewhere it scrolls the page.
  #wheel(event) {
    if (this.selected === null || !this.frame?.isObject(this.selected) || this.#drag) return;
    event.preventDefault();
    const lines = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 30 : 1;
    const factor = Math.exp(-WHEEL * lines * Math.max(-200, Math.min(200, event.deltaY)));
    this.#gestures.step("resize", this.selected, { factor });
  }
}

function drawGrip(pen, x, y) {
  pen.beginPath();
  pen.arc(x, y, GRIP, 0, 2 * Math.PI);
  pen.fillStyle = "rgb(255 255 255 / 92%)";
  pen.strokeStyle = "rgb(0 0 0 / 35%)";
  pen.lineWidth = 1;
  pen.fill();
  pen.stroke();
  pen.strokeStyle = "#24495f";
  pen.lineWidth = 2;
  pen.lineCap = pen.lineJoin = "round";
  pen.beginPath();
  for (const side of [-1, 1]) {
    pen.moveTo(x + 3 * side, y - 4);
    pen.lineTo(x + 7 * side, y);
    pen.lineTo(x + 3 * side, y + 4);
  }
  pen.stroke();
}

function drawHandle(pen, x, y) {
  pen.fillStyle = "#fff";
  pen.strokeStyle = "rgb(0 0 0 / 60%)";
  pen.lineWidth = 1;
  pen.beginPath();
  pen.rect(x - HANDLE, y - HANDLE, 2 * HANDLE, 2 * HANDLE);
  pen.fill();
  pen.stroke();
}

// A move or a resize while it happens: dragged, turned with the wheel or pressed key by key.

const QUIET = 450; // milliseconds after the last key or turn until the edit is done

export class Gestures {
  #begin;
  #change;
  #finish;
  #timer = null;
  current = null;

  // begin(gesture), change(gesture) and finish(gesture, edit or null) are told what happens.
  constructor({ begin, change, finish }) {
    this.#begin = begin;
    this.#change = change;
    this.#finish = finish;
  }

  start(op, slot) {
    this.end();
    this.current = { op, slot, dx: 0, dy: 0, factor: 1 };
    this.#begin(this.current);
  }

  update(values) {
    if (!this.current) return;
    Object.assign(this.current, values);
    this.#change(this.current);
  }

  end() {
    this.#close((gesture) => toEdit(gesture));
  }

  cancel() {
    this.#close(() => null);
  }

  // A small step of a gesture that ends by itself when no more steps come.
  step(op, slot, { dx = 0, dy = 0, factor = 1 }) {
    const { current } = this;
    if (!current || current.op !== op || current.slot !== slot) this.start(op, slot);
    const now = this.current;
    this.update({ dx: now.dx + dx, dy: now.dy + dy, factor: limitFactor(now.factor * factor) });
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.end(), QUIET);
  }

  #close(edit) {
    clearTimeout(this.#timer);
    const gesture = this.current;
    if (!gesture) return;
    this.current = null;
    this.#finish(gesture, edit(gesture));
  }
}

export const limitFactor = (factor) => Math.min(8, Math.max(0.125, factor));

const rounded = (value, digits) => Number(value.toFixed(digits));

// The edit that a gesture amounts to, or null where nothing was changed.
export function toEdit({ op, slot, dx, dy, factor }) {
  if (op === "move") {
    const edit = { op, slot, dx: rounded(dx, 2), dy: rounded(dy, 2) };
    return edit.dx === 0 && edit.dy === 0 ? null : edit;
  }
  const edit = { op, slot, factor: rounded(factor, 4) };
  return edit.factor === 1 ? null : edit;
}

// What was done to the open scene: states of the server, one after another, and where we are.

import { Frame } from "./frames.js";
import { applyScope } from "./scope.js";

export class History {
  #server;
  #queue = Promise.resolve();
  #changed;
  entries = [];
  at = -1;
  frame = 0;
  scope = { kind: "all", first: 0, last: 0 };
  origin = null; // how to open the same once more

  constructor(server, changed) {
    this.#server = server;
    this.#changed = changed;
  }

  get entry() {
    return this.entries[this.at] ?? null;
  }

  get state() {
    return this.entry?.state ?? null;
  }

  get view() {
    return this.entry?.frames.get(this.frame) ?? null;
  }

  get isVideo() {
    return this.state?.kind === "video";
  }

  // Open a scene: `load` asks the server for its first state.
  async begin(load, origin) {
    return this.#inTurn(async () => {
      const entry = await this.#entry(await load());
      this.entries = [entry];
      this.at = 0;
      this.frame = 0;
      this.origin = origin;
      this.scope = { kind: "all", first: 0, last: entry.state.frames - 1 };
      this.#changed("opened");
    });
  }

  // Do an edit on top of where we are, once all before it are done.
  async commit(edit) {
    return this.#inTurn(async () => {
      const { frame } = this;
      const plan = this.isVideo ? applyScope(edit, this.scope, frame, this.entry) : { edit, base: this.entry };
      const answer = await this.#server.edit(plan.base.state.id, plan.edit, frame);
      const entry = await this.#entry(answer, plan.keyed);
      this.entries = [...this.entries.slice(0, this.at + 1), entry];
      this.at += 1;
      this.#changed("edited");
    });
  }

  // Go on after a reload, with the states that the server still has, by their place.
  async restore(known, work, origin) {
    return this.#inTurn(async () => {
      const made = new Map();
      for (const [place, state] of known) {
        const { keyed } = work.entries[place];
        const base = keyed && made.get(keyed.base);
        made.set(place, await this.#entry(state, base && { ...keyed, keys: new Map(keyed.keys), base }));
      }
      const places = [...made.keys()].sort((one, other) => one - other);
      this.entries = places.map((place) => made.get(place));
      this.at = Math.max(0, places.findLastIndex((place) => place <= work.at));
      this.frame = work.frame;
      this.origin = origin;
      this.scope = work.scope;
      this.#changed("restored");
    });
  }

  async go(step) {
    return this.#inTurn(async () => {
      const goal = this.at + step;
      if (goal < 0 || goal >= this.entries.length) return;
      this.at = goal;
      await this.#need(this.frame);
      this.#changed("went");
    });
  }

  async show(frame) {
    this.frame = frame;
    await this.#need(frame);
    if (this.frame === frame) this.#changed("frame");
  }

  async settled() {
    await this.#queue;
  }

  // One after another; a failure is told to the caller and does not stop the next.
  #inTurn(work) {
    const result = this.#queue.then(work);
    this.#queue = result.catch(() => {});
    return result;
  }

  async #entry(state, keyed) {
    const frame = await Frame.from(state.frame, state.size);
    return { state, keyed, frames: new Map([[frame.number, frame]]), loading: null };
  }

  // Frames come all at once, when one is missing.
  async #need(number) {
    const { entry } = this;
    if (!entry || entry.frames.has(number)) return;
    entry.loading ??= this.#server.frames(entry.state.id).then(async (answers) => {
      for (const answer of answers) {
        entry.frames.set(answer.number, await Frame.from(answer, entry.state.size));
      }
    });
    try {
      await entry.loading;
    } finally {
      entry.loading = null;
    }
  }
}
